"""Tests the web page in a browser: page_test.py URL SCREENSHOTS. Prints TAP; every test_ function is one test."""

import os
import sys
import traceback

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from browser import (QUESTION, URL, browser, cards, chunk, connected, done, find, find_all, fresh_page, js, number,
                     one_token_a_pass, page_of, saved, send, set_field, set_parameter, shot, shown, until, with_card)
from scripted import Scripted


# ---- An answer -----------------------------------------------------------------------------------------------------

def slow_answer():
    """Makes an answer take a second or more: many large passes of a token each. Else a fast processor ends it before the page
    has shown it or a click arrives."""
    one_token_a_pass()
    set_parameter("block_size", "128")
    set_parameter("max_tokens", "400")
    set_parameter("ignore_eos", "true")


def test_masks_turn_into_text():
    fresh_page()
    slow_answer()
    # An observer records the number of masks at each change of the page, so that no frame is missed.
    js("""window.seen = [];
          new MutationObserver(() => seen.push(document.querySelectorAll(".card .text .mask").length))
              .observe(document.querySelector("#conversation"), {childList: true, subtree: true, attributes: true});""")
    set_field("#interval", "16")
    send(QUESTION)
    card = done()[0]
    masks = js("return window.seen")
    assert max(masks) > 3, masks
    assert find_all(".card .text .mask") == []
    assert shown(card).strip(), "no text"
    shot("page-done")


def test_the_numbers_add_up():
    card = cards("done")[0]
    tokens, passes = int(number(card, "tokens")), int(number(card, "passes"))
    assert tokens > 0 and passes > 0
    assert abs(float(number(card, "tokens/forward")) - tokens / passes) < 0.01
    assert number(card, "first token").endswith(" ms")
    assert int(number(card, "prompt")) > 0


def test_replay_goes_back_and_forth():
    card = cards("done")[0]
    slider = card.find_element(By.CSS_SELECTOR, ".replay input")
    last = shown(card)
    slider.send_keys(Keys.HOME)
    assert card.find_elements(By.CSS_SELECTOR, ".text .mask"), "there is no mask before the first pass"
    slider.send_keys(Keys.END)
    assert shown(card) == last
    slider.send_keys(Keys.HOME)
    slider.send_keys(Keys.SPACE)
    until("it plays", lambda: card.find_elements(By.CSS_SELECTOR, ".playing"))
    until("it played to the end", lambda: not card.find_elements(By.CSS_SELECTOR, ".playing"))
    assert slider.get_property("value") == slider.get_property("max") and shown(card) == last


def test_tokens_are_coloured_by_pass():
    colours = js("""return [...document.querySelectorAll(".card .coloured .token")]
                        .map((t) => getComputedStyle(t).backgroundColor)""")
    assert len(set(colours)) > 2, colours
    set_field("#colour", False)
    assert not find_all(".card .coloured")
    set_field("#colour", True)


def test_blocks_have_borders():
    assert find_all(".card .text .starts")
    set_field("#borders", False)
    assert not find_all(".card .text .starts")
    set_field("#borders", True)


def test_stop_ends_an_answer():
    fresh_page()
    slow_answer()
    send(QUESTION)
    until("it began", lambda: len(find_all(".card .text .token")) > 12)
    shot("page-denoising")
    find("#stop").click()
    until("it stopped", lambda: len(cards("stopped")) == 1)
    assert find("#send").is_displayed()
    kept = saved()[0]["turns"][0]["answers"][0]
    assert kept["state"] == "stopped" and kept["text"] and kept["text"] in shown(cards("stopped")[0]), kept


def test_escape_stops_too():
    send(QUESTION)
    until("it began", lambda: find("#stop").is_displayed())
    find("body").send_keys(Keys.ESCAPE)
    until("it stopped", lambda: len(cards("stopped")) == 2)


# ---- Settings ------------------------------------------------------------------------------------------------------

def test_parameters_come_from_the_server():
    fresh_page()
    names = [e.get_attribute("textContent") for e in find_all(".row .name")]
    for name in ("temperature", "max_tokens", "accept_threshold", "decoding_strategy"):
        assert name in names, names
    set_field("#find", "accept_thr")
    assert [e.text for e in find_all(".found .name")] == ["accept_threshold"]
    set_field("#find", "")
    assert [e.get_attribute("textContent") for e in find_all(".row .name")] == names


def test_a_parameter_changes_the_answer():
    set_parameter("max_tokens", "5")
    set_parameter("ignore_eos", "true")
    send(QUESTION)
    card = done()[0]
    assert number(card, "tokens") == "5", number(card, "tokens")


def test_a_refused_parameter_is_named():
    fresh_page()
    js("""const all = JSON.parse(localStorage.getItem("unmask.settings"));
          all.parameters[0].max_tokens = -7; localStorage.setItem("unmask.settings", JSON.stringify(all));""")
    browser.refresh()
    until("the server is found", lambda: find("#status").get_attribute("data-state") == "ok")
    send(QUESTION)
    until("it failed", lambda: len(cards("failed")) == 1)
    assert "max_tokens" in find(".failure").text, find(".failure").text


def test_two_settings_side_by_side():
    fresh_page()
    set_field("#compare", True)
    set_parameter("accept_threshold", "0.3")
    find("#side-b").click()
    one_token_a_pass()
    send(QUESTION)
    done(2)
    a, b = cards("done")
    assert [c.find_element(By.CSS_SELECTOR, ".side").text for c in (a, b)] == ["A", "B"]
    assert [c.find_element(By.CSS_SELECTOR, ".label").text for c in (a, b)] == ["accept_threshold 0.3", "accept_threshold 1"]
    assert int(number(a, "passes")) < int(number(b, "passes"))
    shot("page-compare")


def test_a_comparison_names_the_defaults_and_equal_settings():
    fresh_page()
    set_field("#compare", True)
    set_parameter("max_tokens", "5")
    labels = lambda: js("""const done = arguments[0]; return [...document.querySelectorAll('.card .label')].map((e) => e.textContent)""")
    send("What is 12 + 30?")
    done(2)
    assert labels() == ["max_tokens 5", "max_tokens auto"], labels()
    find("#side-b").click()
    set_parameter("max_tokens", "5")
    find(".regenerate").click()
    until("both answers are new", lambda: labels() == ["same settings"] * 2)
    assert len(done(2)) == 2


def test_closed_choices_are_drop_downs():
    fresh_page()
    rows = js("""return fetch("/options").then((r) => r.json()).then((o) => o.data)""")
    closed = [r for r in rows if r["type"] == "bool" or r.get("choices") or r.get("names")]
    assert {"decoding_strategy", "sampler", "confidence", "retention", "sparse"} <= {r["name"] for r in closed}
    for row in closed:
        words = js("""const e = [...document.querySelectorAll(".row")].find((r) => r.querySelector(".name").textContent === arguments[0]);
                      return [...e.querySelector("select").options].map((o) => o.value)""", row["name"])
        assert words == [""] + (row.get("choices") or row.get("names") or ["true", "false"]), (row["name"], words)
        assert len(set(words)) == len(words), words


def test_a_stored_alias_stays_chosen():
    fresh_page({"parameters": [{"sampler": "low_confidence_threshold"}, {}]})
    row = js("""return [...document.querySelectorAll(".row")].find((r) => r.querySelector(".name").textContent === "sampler")""")
    assert row.find_element(By.CSS_SELECTOR, "select").get_property("value") == "low_confidence_threshold"


def test_parameters_come_first_and_the_server_is_folded():
    fresh_page()
    top = lambda selector: js("return document.querySelector(arguments[0]).getBoundingClientRect().top", selector)
    assert top("#parameters") < top("#view") < top("#server")
    assert not find("#base").is_displayed() and not find("#key").is_displayed()
    assert not find("#model").is_displayed(), "there is only one model"
    find("#server summary").click()
    assert find("#base").is_displayed() and find("#key").is_displayed()


def test_the_search_puts_the_exact_name_first():
    fresh_page()
    for text, first in (("factor", "factor"), ("temperature", "temperature"), ("sparse", "sparse"), ("Entropy bound", "entropy_bound"),
                        ("steps", "steps"), ("accept", "accept_threshold")):
        set_field("#find", text)
        names = [e.text for e in find_all(".found .name")]
        assert names[0] == first, (text, names)
    set_field("#find", "no such thing")
    assert find(".found").text == "no such parameter"


def test_settings_survive_a_reload_and_keys_do_not():
    fresh_page()
    set_parameter("temperature", "0.5")
    set_field("#interval", "160")
    set_field("#key", "secret")
    browser.refresh()
    until("the server is found", lambda: find("#status").get_attribute("data-state") == "ok")
    assert find("#interval").get_property("value") == "160"
    assert find("#key").get_property("value") == ""
    assert js('return JSON.parse(localStorage.getItem("unmask.settings")).parameters[0].temperature') == 0.5


# ---- The first view ------------------------------------------------------------------------------------------------

def test_an_empty_page_offers_the_examples_of_the_model():
    server = Scripted(examples=["Sort 3, 1, 2.", "<b>What</b> is 1 + 1?", "third", "fourth"])
    server.events = [chunk(content="1, 2, 3"), chunk("stop")]
    page_of(server)
    assert [e.text for e in find_all("#examples button")] == server.examples[:3]
    find("#examples button").click()
    assert shown(done()[0]) == "1, 2, 3"
    assert server.posted[0]["messages"] == [{"role": "user", "content": "Sort 3, 1, 2."}]
    assert not find("#empty").is_displayed()
    server.stop()


def test_a_model_without_examples_has_general_ones():
    server = Scripted()
    page_of(server)
    assert len(find_all("#examples button")) == 3
    assert "masks" in find("#empty p").text
    server.stop()


# ---- Nothing jumps -------------------------------------------------------------------------------------------------

def test_a_replay_leaves_every_word_in_its_place():
    fresh_page()
    one_token_a_pass()
    send("Write a story about a fox and a lake.")
    done()
    places = js("""
        const slider = document.querySelector(".replay input"), body = document.querySelector(".card .text");
        const length = body.children.length, all = [];
        for (let k = 0; k <= Number(slider.max); k++) {
            slider.value = k;
            slider.dispatchEvent(new Event("input"));
            all.push([...body.children].slice(0, length).flatMap((e) => {
                const r = e.getBoundingClientRect();
                return [Math.round(r.left), Math.round(r.top), Math.round(r.width)];
            }));
        }
        return all.map((p) => p.join());""")
    assert len(places) > 10 and len(places[0]) > 100
    assert set(places) == {places[0]}, "a position moved"


def test_the_text_is_where_the_passes_were():
    fresh_page()
    send("Write a story about a fox and a lake.")
    done()
    ends = lambda: js("""
        const walk = document.createTreeWalker(document.querySelector(".card .text"), NodeFilter.SHOW_TEXT), range = document.createRange();
        const rects = [];
        while (walk.nextNode()) {
            range.selectNodeContents(walk.currentNode);
            rects.push(...range.getClientRects());
        }
        const [first, last] = [rects[0], rects.at(-1)];
        return [first.left, first.top, last.right, last.bottom].map(Math.round);""")
    passes = ends()
    find_all(".card .switch button")[0].click()
    assert find(".card .text p")
    assert all(abs(a - b) <= 2 for a, b in zip(ends(), passes)), (ends(), passes)


def test_a_running_answer_keeps_its_words_in_place():
    fresh_page()
    frames = with_card("""
        const frames = ["_ _ _ the _ _ _ sea _ _", "_ a _ the _ _ _ sea _ _", "_ a by the _ _ it sea _ _", "_ a by the _ is it sea _ _",
                        "I a by the x is it sea _ ."];
        done(frames.map((text, k) => { show(k + 1, text); return places(); }));""")
    last = {}
    for frame in frames:
        for p in frame:
            if p["mask"]:
                continue
            was = last.setdefault(p["word"], p)
            assert abs(p["left"] - was["left"]) < 1 and p["top"] == was["top"], (p, was)
    assert len(last) == 9, last.keys()


def test_masks_break_into_lines():
    fresh_page()
    lines = with_card("""
        card.node.style.width = "300px";
        show(1, Array(40).fill("_").join(" ") + " end");
        const all = places().filter((p) => p.mask), right = card.body.getBoundingClientRect().right;
        const rows = Object.values(Object.groupBy(all, (p) => Math.round(p.top)));
        done({rows: rows.length, gaps: rows.slice(0, -1).map((r) => right - r.at(-1).right), over: card.body.scrollWidth - card.body.clientWidth});""")
    assert lines["rows"] > 3 and lines["over"] <= 0, lines
    assert all(0 <= gap < 80 for gap in lines["gaps"]), lines


def test_a_running_card_never_gets_lower():
    fresh_page()
    heights = with_card("""
        card.node.style.width = "300px";
        done([Array(40).fill("_"), Array(40).fill("a"), Array(3).fill("a")].map((words, k) => {
            show(k + 1, words.join(" "));
            return card.body.getBoundingClientRect().height;
        }));""")
    assert heights == sorted(heights), heights


# ---- Slow replay ---------------------------------------------------------------------------------------------------

def replay_of(seconds):
    """Finishes an answer that took this long. Returns whether it is replayed, and its view at the end. The text must not move."""
    seen = with_card("""
        card.node.style.width = "288px"; // of the smallest phone
        card.numbers.sent = performance.now() - %s * 1000;
        show(1, "a _ c");
        show(2, "a b c");
        card.finish("a b c", "stop");
        const plays = card.node.querySelector(".playing") !== null, masks = card.body.querySelectorAll(".mask").length;
        const top = () => card.body.getBoundingClientRect().top - card.node.getBoundingClientRect().top, before = top();
        const end = () => done({plays, masks, view: card.view, moved: top() - before});
        const wait = () => (card.node.querySelector(".playing") ? setTimeout(wait, 50) : setTimeout(end, 50));
        wait();""" % seconds)
    assert seen.pop("moved") == 0
    return seen


def test_a_fast_answer_is_replayed_slowly():
    fresh_page({})
    assert replay_of(0.1) == {"plays": True, "masks": 3, "view": "text"}
    assert replay_of(5) == {"plays": False, "masks": 0, "view": "text"}
    set_field("#slow", False)
    assert replay_of(0.1) == {"plays": False, "masks": 0, "view": "text"}


def test_nothing_is_replayed_for_those_who_want_no_motion():
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]})
    try:
        fresh_page({})
        assert replay_of(0.1) == {"plays": False, "masks": 0, "view": "text"}
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


# ---- Streams and templates -----------------------------------------------------------------------------------------

def test_every_stream_ends_with_the_same_text():
    texts = {}
    for mode in ("denoise", "block_append", "mixed"):
        fresh_page()
        set_field("#mode", mode)
        send(QUESTION)
        texts[mode] = shown(done()[0]).strip()
    assert texts["denoise"] == texts["block_append"] == texts["mixed"], texts


def test_raw_prompts_need_no_template():
    fresh_page()
    Select(find("#template")).select_by_visible_text("Raw text")
    set_field("#prompt", f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n")
    find("#send").click()
    assert shown(done()[0]).strip()


def test_a_conversation_goes_on():
    fresh_page()
    send(QUESTION)
    first = int(number(done()[0], "prompt"))
    send("What is 12 + 30?")
    second = int(number(done(2)[1], "prompt"))
    assert second > first
    find("#clear").click()
    assert not find_all(".card") and find("#empty").is_displayed()


# ---- The page ------------------------------------------------------------------------------------------------------

def test_keyboard():
    fresh_page()
    find("body").click()
    js("document.activeElement.blur()")
    find("body").send_keys("?")
    assert find("#help-box").is_displayed()
    find("#help-box button").click()
    js("document.activeElement.blur()")
    find("body").send_keys("/")
    assert js("return document.activeElement.id") == "prompt"


def test_dark_and_light():
    back = lambda: js("return getComputedStyle(document.body).backgroundColor")
    before = back()
    find("#theme").click()
    assert back() != before
    shot("page-theme")


def test_a_phone_shows_it_all():
    fresh_page()
    browser.set_window_size(500, 850)
    try:
        assert js("return document.documentElement.scrollWidth <= innerWidth")
        if find("#settings").is_displayed():
            find("#toggle-settings").click()
        send(QUESTION)
        done()
        assert js("return document.documentElement.scrollWidth <= innerWidth")
        shot("page-phone")
    finally:
        browser.set_window_size(1280, 800)


def test_nothing_comes_from_elsewhere():
    fresh_page()
    loaded = js('return performance.getEntriesByType("resource").map((e) => new URL(e.name).origin)')
    assert set(loaded) <= {URL}, loaded
    usual = ("/v1/chat/completions", "ERR_CONNECTION_REFUSED")  # tests with servers that fail or go away
    wrong = [e for e in browser.get_log("browser") if e["level"] == "SEVERE" and not any(u in e["message"] for u in usual)]
    assert not wrong, wrong


def test_films_remember_edits_and_new_masks():
    changes = browser.execute_async_script("""
        const done = arguments[0];
        import("/film.js").then(({Film}) => {
            const film = new Film();
            const frame = (nfe, ids, pass) => film.add({nfe, token_ids: ids, tokens: ids.map(String), pass, stable_len: 0, blocks: []});
            frame(1, [1, 9, 9], [1, -1, -1]);
            frame(2, [1, 2, 9], [1, 2, -1]);
            frame(3, [7, 9, 9], [3, -1, -1]);
            const at = (k) => film.at(k).cells.map((c) => c.change || (c.pass < 0 ? "mask" : "same"));
            done([at(0), at(2), at(1), at(0)]);
        });""")
    assert changes == [["fresh", "mask", "mask"], ["edited", "remasked", "mask"], ["same", "fresh", "mask"],
                       ["fresh", "mask", "mask"]], changes


def test_films_merge_by_offset():
    fresh_page()
    ids = browser.execute_async_script("""
        const done = arguments[0];
        import("/film.js").then(({Film}) => {
            const film = new Film();
            const frame = (nfe, token_offset, ids, pass) => film.add({nfe, token_offset, token_ids: ids, tokens: ids.map(String),
                                                                      pass, stable_len: 0, blocks: []});
            frame(1, 0, [1, 2, 9], [1, 1, -1]);
            frame(2, 2, [3, 4], [2, 2]);
            done([0, 1].map((k) => film.at(k).cells.map((c) => c.id)));
        });""")
    assert ids == [[1, 2, -1], [1, 2, 3, 4]], ids


def test_every_template_makes_a_question():
    fresh_page()
    made = browser.execute_async_script("""
        const done = arguments[0];
        import("/templates.js").then(({templates}) => done(templates.map((t) => [t.name, t.kind, t.make("Q")])));""")
    names = [name for name, _, _ in made]
    assert len(set(names)) == len(names)
    for task in ("GSM8K", "MATH", "MBPP", "HumanEval"):
        assert task in names and f"{task}, LLaDA2" in names, names
    for name, kind, text in made:
        asked = text if kind != "chat" else text[-1]["content"]
        assert "Q" in asked, name
        if kind == "chat":
            assert [m["role"] for m in text] == (["system", "user"] if "LLaDA2" in name else ["user"]), name


def test_a_long_answer_is_not_drawn_anew_in_every_pass():
    fresh_page()
    changed = browser.execute_async_script("""
        const done = arguments[0];
        import("/card.js").then(async ({Card}) => {
            const card = new Card({}), n = 1000, frame = () => new Promise((go) => setTimeout(go, 0));
            document.querySelector("#conversation").append(card.node);
            const show = (nfe) => { // the first pass commits nearly all tokens, each further pass one
                const pass = Array.from({length: n}, (_, i) => (i < n - 50 ? 1 : i < n - 50 + nfe ? 1 + i - (n - 50) : -1));
                card.snapshot({nfe, token_offset: 0, token_ids: pass.map(() => 7), tokens: pass.map(() => "x"), pass,
                               stable_len: 0, blocks: []});
                card.redraw();
            };
            show(1);
            show(2);
            await frame();
            const seen = new Set(), watch = new MutationObserver((all) => all.forEach((m) => seen.add(m.target)));
            watch.observe(card.body, {childList: true, subtree: true, attributes: true, characterData: true});
            show(3);
            await frame();
            card.stopped();
            done(seen.size);
        });""")
    assert 0 < changed < 100, changed


# ---- Scripted servers ----------------------------------------------------------------------------------------------

def test_a_server_that_went_away_is_looked_for():
    server = Scripted()
    server.events = [chunk(content="hello"), chunk("stop")]
    page_of(server)
    server.stop()
    send("is anybody there?")
    until("it failed", lambda: len(cards("failed")) == 1)
    connected("error")
    assert find("#prompt").get_property("value") == "is anybody there?"
    server.start()
    connected("ok")
    find("#send").click()
    assert shown(done()[0]) == "hello"
    server.stop()


def test_a_loading_server_shows_how_far_it_is():
    server = Scripted()
    server.health = {"status": "loading", "fraction": 0.347}
    bar = lambda: find("#loaded progress").get_property("value")
    fresh_page()
    assert not find("#loaded").is_displayed()
    set_field("#base", server.url)
    until("the server loads", lambda: find("#status").text == "loading scripted")
    until("the share is shown", lambda: find("#loaded").text == "34 %" and bar() == 0.347)
    assert find("#status").get_attribute("data-state") == "loading"
    server.health = {"status": "loading", "fraction": 7}
    until("the share grows", lambda: find("#loaded").text == "100 %" and bar() == 1)
    server.health = {"status": "sleeping", "fraction": "x"}
    connected("ok")
    assert find("#status").text == "scripted" and not find("#loaded").is_displayed()
    server.health, server.status = {"status": "loading", "fraction": 0}, 503
    send("hi")
    until("the server loads again", lambda: find("#loaded").text == "0 %")
    server.stop()
    connected("error")
    assert not find("#loaded").is_displayed()
    server.health = None
    server.start()
    connected("ok")
    server.stop()


def test_a_question_that_failed_does_not_replace_what_was_typed_since():
    server = Scripted()
    server.status = 500
    page_of(server)
    js("document.querySelector('#prompt').value = 'first'; document.querySelector('#composer').requestSubmit();"
       "document.querySelector('#prompt').value = 'second'")
    until("it failed", lambda: len(cards("failed")) == 1)
    assert find("#prompt").get_property("value") == "second"
    server.stop()


def test_a_missing_key_leads_to_its_field():
    server = Scripted(key="secret")
    server.events = [chunk(content="hello"), chunk("stop")]
    fresh_page()
    if find("#settings").is_displayed():
        find("#toggle-settings").click()
    set_field("#base", server.url)
    connected("error")
    assert find("#settings").is_displayed() and js("return document.activeElement.id") == "key"
    find("#key").send_keys("secret" + Keys.ENTER)
    connected("ok")
    set_field("#mode", "block_append")
    send("hi")
    assert shown(done()[0]) == "hello"
    server.stop()


def test_a_busy_server_says_when_to_come_back():
    server = Scripted()
    server.status, server.headers = 429, {"Retry-After": "7"}
    page_of(server)
    send("hi")
    until("it failed", lambda: len(cards("failed")) == 1)
    assert "scripted 429" in find(".failure").text and "7 s" in find(".failure").text, find(".failure").text
    server.stop()


def test_reasoning_is_shown_and_not_sent_again():
    server = Scripted()
    server.events = [chunk(reasoning_content="let me see"), chunk(content="42"), chunk("stop")]
    page_of(server)
    send("why?")
    assert shown(done()[0]) == "let me see42"
    assert find(".card .reasoning").text == "let me see"
    send("really?")
    done(2)
    assert [m["content"] for m in server.posted[-1]["messages"]] == ["why?", "42", "really?"]
    server.stop()


# ---- Regenerate, edit, save ----------------------------------------------------------------------------------------

def talk(server, *answers):
    """Asks "question 1", "question 2", ... and waits for these answers."""
    for n, text in enumerate(answers, 1):
        server.events = [chunk(content=text), chunk("stop")]
        send(f"question {n}")
        done(n)


def contents(server):
    return [m["content"] for m in server.posted[-1]["messages"]]


def test_regenerate_replaces_the_last_answer():
    server = Scripted()
    page_of(server)
    talk(server, "one", "two")
    assert [b.is_displayed() for b in find_all(".regenerate")] == [False, True]
    server.events = [chunk(content="three"), chunk("stop")]
    find_all(".regenerate")[1].click()
    until("the answer is new", lambda: [shown(c) for c in cards("done")] == ["one", "three"])
    assert contents(server) == ["question 1", "one", "question 2"]
    assert len(find_all(".question")) == 2
    server.stop()


def test_an_edited_question_starts_anew_from_there():
    server = Scripted()
    page_of(server)
    talk(server, "one", "two")
    server.events = [chunk(content="other"), chunk("stop")]
    edit = lambda: js("document.querySelector('.question button').click()")
    edit()
    find(".question textarea").send_keys(Keys.ESCAPE)
    assert not find_all(".question textarea") and len(cards("done")) == 2
    edit()
    find(".question textarea").send_keys(" indeed" + Keys.ENTER)
    until("the conversation is new", lambda: [shown(c) for c in cards("done")] == ["other"])
    assert find(".question .words").text == "question 1 indeed"
    assert contents(server) == ["question 1 indeed"]
    server.stop()


def test_a_conversation_can_be_opened_again_and_goes_on():
    server = Scripted()
    page_of(server)
    talk(server, "**one**", "two")
    assert [len(c["turns"]) for c in saved()] == [2]
    browser.refresh()
    until("the scripted server is found", lambda: find("#status").text == "scripted")
    assert find("#empty").is_displayed() and not cards("done")
    find("#saved").click()
    assert find("#saved-list .title").text == "question 1"
    find("#saved-list .open").click()
    assert [shown(c) for c in cards("done")] == ["one", "two"]
    assert find(".card .text strong").text == "one"
    assert number(cards("done")[0], "tokens") == "1"
    server.events = [chunk(content="three"), chunk("stop")]
    send("question 3")
    done(3)
    assert contents(server) == ["question 1", "**one**", "question 2", "two", "question 3"]
    assert [len(c["turns"]) for c in saved()] == [3]
    server.stop()


def test_saved_conversations_can_be_deleted():
    server = Scripted()
    page_of(server)
    for _ in range(2):
        talk(server, "one")
        find("#clear").click()
    find("#saved").click()
    assert len(find_all("#saved-list li")) == 2
    find("#saved-list li button:last-child").click()
    assert len(find_all("#saved-list li")) == 1 and len(saved()) == 1
    find("#forget").click()
    browser.switch_to.alert.accept()
    assert not find_all("#saved-list li") and saved() == []
    find("#saved-box form button:last-child").click()
    set_field("#keep", False)
    talk(server, "one")
    assert saved() == []
    server.stop()


def test_saved_conversations_are_bounded():
    fresh_page()
    kept = browser.execute_async_script("""
        const done = arguments[0];
        import("/conversations.js").then(({all, put}) => {
            const answer = (text) => ({text, reasoning: "", state: "done", reason: "", side: "", label: "", numbers: {}});
            const make = (id, text) => ({id, time: 0, turns: [{text: "q", suffix: "", template: "Chat", answers: [answer(text)]}]});
            for (let i = 0; i < 60; i++) put(make(`small ${i}`, "x"));
            const many = all().map((c) => c.id);
            const whole = put(make("huge", "x".repeat(1_100_000)));
            const after = all().length;
            for (let i = 0; i < 5; i++) put(make(`large ${i}`, "x".repeat(300_000)));
            const large = all().map((c) => c.id);
            localStorage.setItem("unmask.conversations", '[{"id": 5}, null, {"id": "a", "time": 0, "turns": [{}]}]');
            done({many, whole, after, large, wrong: all().length});
        });""")
    assert kept["many"] == [f"small {i}" for i in range(59, 9, -1)], kept["many"]
    assert kept["whole"] is False and kept["after"] == 50
    assert kept["large"][:3] == ["large 4", "large 3", "large 2"] and "large 1" not in kept["large"]
    assert kept["wrong"] == 0


def test_a_page_without_storage_works():
    server = Scripted()
    page_of(server)
    js("Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }")
    talk(server, "one")
    assert "could not be saved" in find("#news").get_attribute("textContent")
    js("Storage.prototype.getItem = () => { throw new DOMException('denied', 'SecurityError'); }")
    find("#saved").click()
    assert not find_all("#saved-list li")
    find("#saved-box form button:last-child").click()
    server.stop()


# ---- Markdown ------------------------------------------------------------------------------------------------------

def markdown(text):
    """Renders a text. Returns the HTML of the nodes."""
    return browser.execute_async_script("""
        const [text, done] = arguments;
        import("/markdown.js").then(({render}) => {
            const box = document.createElement("div");
            box.append(...render(text));
            done(box.innerHTML);
        });""", text)


def test_finished_answers_are_markdown():
    fresh_page()
    for text, html in (
            ("a *b* **c** `d`", "<p>a <em>b</em> <strong>c</strong> <code>d</code></p>"),
            ("2 * 3 * 4, snake_case_name, **", "<p>2 * 3 * 4, snake_case_name, **</p>"),
            ("# A\n\nb\nc\n\nd", "<h3>A</h3><p>b\nc</p><p>d</p>"),
            ("- a\n- b\n  - c\n\ntext", "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><p>text</p>"),
            ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
            ("in\n1999. It", "<p>in\n1999. It</p>"),
            ("> a\n> b", "<blockquote><p>a\nb</p></blockquote>"),
            ("```py\nif a < b:\n    *c*\n```\nd", '<pre data-language="py"><code>if a &lt; b:\n    *c*</code></pre><p>d</p>'),
            ("```\nopen", "<pre><code>open</code></pre>"),
            ("| a | b |\n|---|---|\n| 1 | 2 |",
             "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>2</td></tr></tbody></table>"),
            ("---", "<hr>")):
        assert markdown(text) == html, (text, markdown(text))


def test_markdown_is_safe():
    fresh_page()
    link = '<a href="{0}" target="_blank" rel="noopener noreferrer">{1}</a>'
    for text, html in (
            ("<img src=x onerror=alert(1)><script>alert(1)</script>",
             "<p>&lt;img src=x onerror=alert(1)&gt;&lt;script&gt;alert(1)&lt;/script&gt;</p>"),
            ("[a](javascript:alert(1))", "<p>[a](javascript:alert(1))</p>"),
            ("[a](data:text/html,x) [b](//evil) [c](/x)", "<p>[a](data:text/html,x) [b](//evil) [c](/x)</p>"),
            ("[a](https://example.org/x?y=1)", f'<p>{link.format("https://example.org/x?y=1", "a")}</p>'),
            ('[<b>](https://example.org/"onclick="x)', f'<p>{link.format("https://example.org/%22onclick=%22x", "&lt;b&gt;")}</p>'),
            ("![a](http://example.org/a.png)", f'<p>{link.format("http://example.org/a.png", "a")}</p>'),
            ("```<script>\nx\n```", "<pre><code>x</code></pre>")):
        got = markdown(text).replace('href="https://example.org/&quot;onclick=&quot;x"', 'href="https://example.org/%22onclick=%22x"')
        assert got == html, (text, got)
    hostile = js("""return ["> ".repeat(5000) + "x", "- ".repeat(5000), "**a ".repeat(20000), "`".repeat(9999) + "a", "[".repeat(20000),
                            "|".repeat(5000) + "\\n" + "|-".repeat(5000), "_a*".repeat(9000), "* a\\n ".repeat(3000)]""")
    for text in hostile:
        assert markdown(text), text[:20]
    for name in sorted(os.listdir("web")):
        with open(os.path.join("web", name), encoding="utf-8") as file:
            source = file.read()
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser"):
            assert word not in source, (name, word)


def test_code_can_be_copied():
    server = Scripted()
    page_of(server)
    talk(server, "Look:\n```py\nprint(1)\n```")
    js('Object.defineProperty(navigator, "clipboard", {value: undefined})')
    find(".card pre button").click()
    until("it says so", lambda: find(".card pre button").text == "copied")
    find("#prompt").send_keys(Keys.CONTROL + "v")
    assert find("#prompt").get_property("value") == "print(1)"
    assert find(".card pre .language").text == "py"
    server.stop()


# ---- Fields and buttons --------------------------------------------------------------------------------------------

def test_a_time_out_that_is_none_is_not_taken():
    fresh_page()
    for text in ("", "0", "99999999999"):
        set_field("#timeout", text)
        assert js('return JSON.parse(localStorage.getItem("unmask.settings"))?.timeout ?? 600') == 600
    set_field("#timeout", "30")
    assert js('return JSON.parse(localStorage.getItem("unmask.settings")).timeout') == 30


def test_a_value_out_of_range_is_explained_and_not_sent():
    fresh_page()
    set_parameter("accept_threshold", "7")
    row = js("""return [...document.querySelectorAll(".row")].find((r) => r.querySelector(".name").textContent === "accept_threshold")""")
    assert "0..1" in row.find_element(By.CSS_SELECTOR, ".complaint").text
    assert "accept_threshold" not in js('return JSON.parse(localStorage.getItem("unmask.settings")).parameters[0]')
    set_parameter("accept_threshold", "0.7")
    assert not row.find_element(By.CSS_SELECTOR, ".complaint").is_displayed()


def test_copies_without_the_clipboard_interface():
    fresh_page()
    set_parameter("max_tokens", "5")
    send("What is 12 + 30?")
    text = js("return document.querySelector('.card .text').textContent") if done() else ""
    js('Object.defineProperty(navigator, "clipboard", {value: undefined})')
    find(".card .tools button").click()
    until("it says so", lambda: find(".card .tools button").text == "copied")
    find("#prompt").send_keys(Keys.CONTROL + "v")
    assert find("#prompt").get_property("value").strip() == text.strip(), find("#prompt").get_property("value")


# ---- Accessibility -------------------------------------------------------------------------------------------------

def test_everything_that_can_be_used_has_a_name():
    fresh_page()
    set_field("#compare", True)
    send(QUESTION)
    done(2)
    js("for (const d of document.querySelectorAll('details')) d.open = true")
    for e in find_all("button, input, select, textarea, [role]"):
        if not e.is_displayed():
            continue
        name = e.accessible_name
        assert any(c.isalpha() for c in name) or e.aria_role in ("status", "group"), \
            f"{e.get_attribute('outerHTML')[:120]}: {name!r}"
    for row in find_all(".row")[:3]:
        assert row.find_element(By.CSS_SELECTOR, "input, select").accessible_name == \
            row.find_element(By.CSS_SELECTOR, ".name").text


def test_colours_can_be_told_apart():
    """Checks the contrasts that WCAG 2.1 demands: 4.5 for text, 3 for masks and for the borders of fields."""
    fresh_page()
    send(QUESTION)
    done()
    set_parameter("accept_threshold", "7")
    find("#help").click()
    low = js("""
        const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
        const light = (c) => c.slice(0, 3).map((v) => v / 255)
            .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        const back = (e) => {
            for (; e; e = e.parentElement) {
                const c = rgb(getComputedStyle(e).backgroundColor);
                if (c.length === 3 || c[3] > 0) return c;
            }
            return [255, 255, 255];
        };
        const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
        const low = [];
        for (const theme of ["light", "dark"]) {
            document.documentElement.dataset.theme = theme;
            for (const s of ["body", "#status", "#settings h2", ".row .help", ".row .range", ".row .complaint", ".card header",
                             ".numbers dt", "#send", ".words", ".question button", ".switch button", ".tools button", ".legend",
                             "#help-box .fresh", "#help-box .edited", ".card .coloured .token", ".quiet"])
                for (const e of document.querySelectorAll(s)) {
                    if (!e.textContent) continue;
                    e.style.transition = "none";
                    const c = contrast(rgb(getComputedStyle(e).color), back(e));
                    if (c < 4.5) low.push([theme, s, c]);
                }
            const probe = document.body.appendChild(document.createElement("i"));
            probe.style.color = "var(--hatch)"; // the lines of a mask
            const c = contrast(rgb(getComputedStyle(probe).color), back(probe));
            if (c < 3) low.push([theme, "mask", c]);
            probe.remove();
            for (const s of [".box", "#base", "#find", "#reset"]) {
                const e = document.querySelector(s);
                const c = contrast(rgb(getComputedStyle(e).borderTopColor), back(e.parentElement));
                if (c < 3) low.push([theme, s, c]);
            }
        }
        return low;""")
    find("#help-box button").click()
    assert not low, low


def test_the_end_of_an_answer_is_announced():
    fresh_page()
    set_parameter("max_tokens", "5")
    set_parameter("ignore_eos", "true")
    send("What is 12 + 30?")
    text = shown(done()[0])
    assert text.strip() in find("#news").get_attribute("textContent")
    assert find("#news").get_attribute("role") == "status"


def test_the_smallest_phones_show_it_all():
    fresh_page()
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": 320, "height": 560, "deviceScaleFactor": 1, "mobile": True})
    try:
        browser.refresh()
        connected()
        narrow = lambda: js("return document.documentElement.scrollWidth <= innerWidth")
        if not find("#settings").is_displayed():
            find("#toggle-settings").click()
        assert find("#settings").is_displayed() and narrow()
        assert js("return document.querySelector('#composer').inert"), "what the settings cover can be reached"
        find("#find").send_keys(Keys.ESCAPE)
        assert not find("#settings").is_displayed()
        assert js("return document.activeElement.id") == "toggle-settings"
        send(QUESTION)
        done()
        assert narrow()
        assert js("""const box = document.querySelector("#send").getBoundingClientRect();
                     return box.right <= innerWidth && box.bottom <= innerHeight""")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def main():
    tests = [(name, f) for name, f in globals().items() if name.startswith("test_")]
    failed = 0
    for n, (name, test) in enumerate(tests, 1):
        try:
            test()
            print(f"ok {n} - {name}", flush=True)
        except Exception:  # the other tests run even if this one fails
            failed += 1
            print(f"not ok {n} - {name}", flush=True)
            print("# " + traceback.format_exc().replace("\n", "\n# "), flush=True)
    print(f"1..{len(tests)}")
    browser.quit()
    return 1 if failed else 0


sys.exit(main())
