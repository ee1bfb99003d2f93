"""The browser of the tests of the web page, and short ways to use it: a script with the arguments URL SCREENSHOTS imports it."""

import json
import os
import sys

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

URL, SHOTS = sys.argv[1], sys.argv[2]
QUESTION = "A book has 110 pages. Hana reads 12 pages a day for 8 days. How many pages are left?"
WAIT_SECONDS = 120


def open_browser():
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,800"):
        options.add_argument(flag)
    options.binary_location = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    driver.set_script_timeout(WAIT_SECONDS)
    return driver


browser = open_browser()


def find(selector):
    return browser.find_element(By.CSS_SELECTOR, selector)


def find_all(selector):
    return browser.find_elements(By.CSS_SELECTOR, selector)


def until(what, condition):
    return WebDriverWait(browser, WAIT_SECONDS, poll_frequency=0.02).until(lambda _: condition(), what)


def js(code, *args):
    return browser.execute_script(code, *args)


# Most tests look at the passes of an answer at once, without a slow replay.
PASSES = {"slow": False, "finished": "passes"}


def fresh_page(settings=PASSES):
    """Opens the page with only these stored settings, and waits until it has found the server."""
    browser.get(URL)
    js("localStorage.clear(); localStorage.setItem('unmask.settings', arguments[0])", json.dumps(settings))
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


def saved():
    """The saved conversations."""
    return js("return JSON.parse(localStorage.getItem('unmask.conversations')) ?? []")


def shot(name):
    browser.save_screenshot(os.path.join(SHOTS, name + ".png"))


def connected(state="ok"):
    until(f"the status is {state}", lambda: find("#status").get_attribute("data-state") == state)


def page_of(server, mode="block_append"):
    fresh_page()
    set_field("#mode", mode)
    set_field("#base", server.url)
    until("the scripted server is found", lambda: find("#status").text == "scripted")


def chunk(finish_reason=None, **delta):
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def with_card(code):
    """Runs code with a Card on the page, and show(nfe, text): "_" is a mask, other words are tokens."""
    return browser.execute_async_script("""
        const done = arguments[0];
        import("/card.js").then(({Card}) => {
            const card = new Card({}), written = [];
            document.querySelector("#empty").hidden = true;
            document.querySelector("#conversation").append(card.node);
            const show = (nfe, text) => {
                const words = text.split(" ");
                words.forEach((w, i) => { written[i] = w === "_" ? -1 : written[i] > 0 ? written[i] : nfe; });
                card.snapshot({nfe, token_offset: 0, token_ids: words.map((w, i) => i), tokens: words.map((w) => w + " "),
                               pass: [...written], stable_len: 0, blocks: [{start: 0, length: words.length, status: "ACTIVE"}]});
                card.redraw();
            };
            const places = () => [...card.body.children].map((e) => [e, e.getBoundingClientRect()])
                .map(([e, r]) => ({word: e.textContent.trim(), mask: e.classList.contains("mask"), left: r.left, top: r.top, right: r.right}));
            %s
        });""" % code)
