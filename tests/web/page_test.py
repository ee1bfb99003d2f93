"""Tests the web page in a browser: page_test.py URL SCREENSHOTS. Prints TAP; every test_ function is one test."""

import os
import sys
import traceback

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from scripted import Scripted

URL, SHOTS = sys.argv[1], sys.argv[2]
QUESTION = "A book has 110 pages. Hana reads 12 pages a day for 8 days. How many pages are left?"
WAIT_SECONDS = 120


def open_browser():
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,800"):
        options.add_argument(flag)
    options.binary_location = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))


browser = open_browser()


def find(selector):
    return browser.find_element(By.CSS_SELECTOR, selector)


def find_all(selector):
    return browser.find_elements(By.CSS_SELECTOR, selector)


def until(what, condition):
    return WebDriverWait(browser, WAIT_SECONDS, poll_frequency=0.02).until(lambda _: condition(), what)


def js(code, *args):
    return browser.execute_script(code, *args)


def fresh_page():
    """Opens the page without stored settings, and waits until it has found the server."""
    browser.get(URL)
    js("localStorage.clear()")
    browser.get(URL)
    until("the server is found", lambda: find("#status").get_attribute("data-state") == "ok")


def set_field(selector, value):
    """Sets a field and sends the events that typing sends."""
    js("""const e = document.querySelector(arguments[0]);
          if (e.type === "checkbox") e.checked = arguments[1]; else e.value = arguments[1];
          e.dispatchEvent(new Event("input", {bubbles: true})); e.dispatchEvent(new Event("change", {bubbles: true}));""",
       selector, value)


def set_parameter(name, value):
    js("""const row = [...document.querySelectorAll(".row")].find((r) => r.querySelector(".name").textContent === arguments[0]);
          const e = row.querySelector("input, select");
          e.value = arguments[1]; e.dispatchEvent(new Event("input", {bubbles: true}));""", name, value)


def one_token_a_pass():
    """Makes each pass commit only one token, because no token reaches this threshold. So the test sees many passes."""
    set_parameter("accept_threshold", "1")


def send(text):
    find("#prompt").send_keys(text + Keys.ENTER)


def cards(state):
    return find_all(f'.card[data-state="{state}"]')


def done(n=1):
    until(f"{n} answers", lambda: len(cards("done")) == n)
    return cards("done")


def shown(card):
    return card.find_element(By.CSS_SELECTOR, ".text").get_attribute("textContent")


def number(card, name):
    return card.find_element(By.CSS_SELECTOR, f'.numbers [data-name="{name}"] dd').text


def shot(name):
    browser.save_screenshot(os.path.join(SHOTS, name + ".png"))


# ---- An answer -----------------------------------------------------------------------------------------------------

def test_masks_turn_into_text():
    fresh_page()
    one_token_a_pass()
    # An observer records the number of masks at each change of the page, so that no frame is missed.
    js("""window.seen = [];
          new MutationObserver(() => seen.push(document.querySelectorAll(".card .mask").length))
              .observe(document.querySelector("#conversation"), {childList: true, subtree: true, attributes: true});""")
    set_field("#interval", "16")
    send(QUESTION)
    card = done()[0]
    masks = js("return window.seen")
    assert max(masks) > 3, masks
    assert find_all(".card .mask") == []
    assert shown(card).strip(), "no text"
    assert "▨" not in shown(card)
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
    assert card.find_elements(By.CSS_SELECTOR, ".mask"), "the first pass left no mask"
    slider.send_keys(Keys.END)
    assert shown(card) == last
    slider.send_keys(Keys.HOME)
    slider.send_keys(Keys.SPACE)
    until("it played to the end", lambda: shown(card) == last)


def test_tokens_are_coloured_by_pass():
    colours = js("""return [...document.querySelectorAll(".card .coloured .token")]
                        .map((t) => getComputedStyle(t).backgroundColor)""")
    assert len(set(colours)) > 2, colours
    set_field("#colour", False)
    assert not find_all(".card .coloured")
    set_field("#colour", True)


def test_blocks_have_borders():
    assert find_all(".card .edge")
    set_field("#borders", False)
    assert not find_all(".card .edge")
    set_field("#borders", True)


def test_stop_ends_an_answer():
    fresh_page()
    one_token_a_pass()
    set_parameter("max_tokens", "700")
    set_parameter("ignore_eos", "true")
    send(QUESTION)
    until("it began", lambda: find_all(".card .token"))
    shot("page-denoising")
    find("#stop").click()
    until("it stopped", lambda: len(cards("stopped")) == 1)
    assert find("#send").is_displayed()


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
    assert len([r for r in find_all(".row") if r.get_property("hidden") is False]) == 1
    set_field("#find", "")


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
    assert int(number(a, "passes")) < int(number(b, "passes"))
    shot("page-compare")


def test_settings_survive_a_reload_and_keys_do_not():
    fresh_page()
    set_parameter("temperature", "0.5")
    set_field("#mask", "#")
    set_field("#key", "secret")
    browser.refresh()
    until("the server is found", lambda: find("#status").get_attribute("data-state") == "ok")
    assert find("#mask").get_property("value") == "#"
    assert find("#key").get_property("value") == ""
    assert js('return JSON.parse(localStorage.getItem("unmask.settings")).parameters[0].temperature') == 0.5


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
    wrong = [e for e in browser.get_log("browser") if e["level"] == "SEVERE" and "/v1/chat/completions" not in e["message"]]
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
            const card = new Card("", {}), n = 3000, frame = () => new Promise((go) => setTimeout(go, 0));
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

def connected(state="ok"):
    until(f"the status is {state}", lambda: find("#status").get_attribute("data-state") == state)


def page_of(server, mode="block_append"):
    fresh_page()
    set_field("#mode", mode)
    set_field("#base", server.url)
    until("the scripted server is found", lambda: find("#status").text == "scripted")


def chunk(finish_reason=None, **delta):
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


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


def test_masks_are_seen_whatever_they_are():
    fresh_page()
    set_field("#mask", "")
    one_token_a_pass()
    js("""window.seen = [];
          new MutationObserver(() => seen.push(...[...document.querySelectorAll(".card .mask")].map((m) => m.textContent)))
              .observe(document.querySelector("#conversation"), {childList: true, subtree: true});""")
    send(QUESTION)
    done()
    masks = [m for m in js("return window.seen") if m.strip()]
    assert masks and set(masks) == {"▨"}, set(masks)


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
                             ".numbers dt", "#send", ".question", "#help-box .fresh", "#help-box .edited", "#help-box .mask",
                             "#help-box .remasked", ".card .coloured .token"])
                for (const e of document.querySelectorAll(s)) {
                    if (!e.textContent) continue;
                    e.style.transition = "none";
                    const c = contrast(rgb(getComputedStyle(e).color), back(e));
                    if (c < (e.classList.contains("mask") ? 3 : 4.5)) low.push([theme, s, c]);
                }
            for (const s of ["#prompt", "#base", "#theme"]) {
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
        find("#key").send_keys(Keys.ESCAPE)
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
