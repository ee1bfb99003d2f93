// A card shows one answer: its text during denoising, its numbers, and at the end a slider over its passes.

import { Film, Numbers } from "./film.js";
import { settings } from "./settings.js";

const element = (tag, className = "", text = "") => Object.assign(document.createElement(tag), { className, textContent: text });
const mask = () => settings.mask || "▨";
const fixed = (v, digits, unit = "") => (v === null || v === undefined ? "–" : v.toFixed(digits) + unit);

export function paintLegend(place) {
  const stops = [0, 1, 2, 3, 4].map((p) => `hsl(${210 + (130 * p) / 4} 70% var(--pass-light))`);
  place.style.background = `linear-gradient(to right, ${stops})`;
}

export class Card {
  film = new Film();
  numbers = new Numbers();
  text = "";       // settled text
  reasoning = "";  // the reasoning, if the server separates it from the text
  #spans = [];     // one per position
  #keys = [];      // the content that each span shows
  #provisional = "";
  #live = true;    // the answer is not finished
  #drawn = 0;      // the time of the last redraw
  #timer = 0;      // of the next redraw
  #playTimer = 0;

  constructor(side, copies) {
    this.node = element("article", "card");
    this.head = element("header");
    if (side) this.head.append(element("span", "side", side));
    this.state = element("span", "state", "waiting");
    this.reason = element("span", "reason"); // the finish reason
    this.head.append(this.state, this.reason);
    this.body = element("div", "text live");
    this.body.setAttribute("aria-live", "off");
    this.replay = this.#makeReplay();
    this.list = element("dl", "numbers");
    this.tools = element("div", "tools");
    for (const [name, make] of Object.entries(copies)) this.tools.append(copyButton(name, () => make(this)));
    this.node.append(this.head, this.body, this.replay, this.list, this.tools);
    this.#drawNumbers();
  }

  // ---- Events ----

  snapshot(s) {
    this.film.add(s);
    this.numbers.update(s.pass.filter((p) => p > 0).length, s.nfe);
    this.numbers.engineTps = s.engine_decode_tps ?? null;
    this.#scheduleRedraw();
  }
  append(text, tokens, nfe) {
    this.text += text;
    this.#provisional = "";
    this.numbers.update(tokens, nfe);
    this.#scheduleRedraw();
  }
  addReasoning(text) {
    this.reasoning += text;
    this.#scheduleRedraw();
  }
  provisional(d, nfe) {
    this.#provisional = d.provisional_text + mask().repeat(d.mask_count);
    if (nfe) this.numbers.nfe = nfe;
    this.#scheduleRedraw();
  }
  usage(u) {
    const n = this.numbers;
    n.prompt = u.prompt_tokens ?? n.prompt;
    n.cached = u.prompt_tokens_details?.cached_tokens ?? n.cached;
    n.nfe = u.nfe ?? n.nfe;
    n.engineTps = u.engine_decode_tps ?? n.engineTps;
    if (u.completion_tokens) n.update(u.completion_tokens, n.nfe);
  }
  finish(text, reason) {
    if (text !== null) this.text = text;
    this.#end("done", reason ?? "");
  }
  stopped() { this.#end("stopped", ""); }
  fail(message) {
    this.#end("failed", "");
    const why = element("p", "failure", message);
    why.setAttribute("role", "alert");
    this.body.after(why);
  }

  #end(state, reason) {
    this.numbers.finish();
    this.#live = false;
    this.#provisional = "";
    clearTimeout(this.#timer);
    this.state.textContent = state;
    this.reason.textContent = reason;
    this.body.classList.remove("live");
    if (this.film.length) {
      this.slider.max = this.film.length - 1;
      this.slider.value = this.slider.max;
      this.replay.hidden = this.film.length < 2;
    }
    this.redraw();
    this.node.dataset.state = state;
  }

  // ---- Drawing ----

  /** Redraws now, or when the redraw interval since the last time is over. */
  #scheduleRedraw() {
    if (this.#timer) return;
    const wait = Math.max(0, this.#drawn + settings.interval - performance.now());
    this.#timer = setTimeout(() => requestAnimationFrame(() => this.redraw()), wait);
  }

  redraw() {
    this.#timer = 0;
    this.#drawn = performance.now();
    if (this.#live) this.state.textContent = this.numbers.first === null ? "waiting" : "writing";
    if (this.film.length) this.#drawFilm(this.#live ? this.film.length - 1 : Number(this.slider.value));
    else this.body.replaceChildren(element("span", "reasoning", this.reasoning), this.text, element("span", "provisional", this.#provisional));
    this.#drawNumbers();
  }

  #drawFilm(k) {
    const { nfe, stable, blocks, cells } = this.film.at(k);
    const starts = settings.borders ? blocks : new Map();
    const still = !this.#live && k === this.film.length - 1; // the finished answer has no highlighted changes
    this.body.classList.toggle("coloured", settings.colour);
    this.body.style.setProperty("--passes", this.film.passes);
    while (this.#spans.length < cells.length) this.#spans.push(this.body.appendChild(element("span")));
    while (this.#spans.length > cells.length) this.#spans.pop().remove();
    this.#keys.length = cells.length;
    cells.forEach((c, i) => this.#drawCell(i, c, still ? "" : c.change, starts.get(i), i < stable));
    this.slider.setAttribute("aria-valuetext", `pass ${nfe}`);
    this.counter.textContent = `pass ${nfe} of ${this.film.passes}`;
  }

  #drawCell(i, c, change, block, settled) {
    const masked = c.pass < 0, text = masked ? mask() : c.text;
    const classes = `${masked ? "mask" : "token"} ${change}${settled ? " settled" : ""}`;
    const key = `${text}\0${classes}\0${c.pass}\0${block?.status ?? ""}`;
    if (this.#keys[i] === key) return;
    this.#keys[i] = key;
    const span = this.#spans[i];
    span.replaceChildren(...(block ? [edge(block)] : []), text);
    span.className = classes;
    span.title = masked ? `position ${i}` : `position ${i}, token ${c.id}, pass ${c.pass}` +
      (c.confidence === null ? "" : `, probability ${c.confidence.toFixed(3)}`);
    if (!masked) span.style.setProperty("--pass", c.pass);
  }

  #drawNumbers() {
    const n = this.numbers;
    const rows = {
      "first token": fixed(n.ttft, 0, " ms"), "tokens/s": fixed(n.tps, 1), "engine tokens/s": fixed(n.engineTps, 1),
      "tokens/forward": fixed(n.tpf, 2), tokens: String(n.tokens), passes: String(n.nfe || "–"),
      prompt: n.prompt === null ? "–" : String(n.prompt), cached: n.cached === null ? "–" : String(n.cached),
    };
    this.list.replaceChildren(...Object.entries(rows).map(([name, value]) => {
      const pair = element("div");
      pair.append(element("dt", "", name), element("dd", "", value));
      pair.dataset.name = name;
      return pair;
    }));
  }

  // ---- Replay ----

  #makeReplay() {
    const box = element("div", "replay");
    this.slider = Object.assign(element("input"), { type: "range", min: 0, max: 0, step: 1 });
    this.slider.setAttribute("aria-label", "Pass");
    this.counter = element("output");
    this.playButton = Object.assign(element("button", "play"), { type: "button" });
    this.playButton.addEventListener("click", () => this.#play());
    this.#pause();
    this.slider.addEventListener("input", () => { this.#pause(); this.redraw(); });
    this.slider.addEventListener("keydown", (e) => {
      if (e.key !== " ") return;
      e.preventDefault();
      this.#play();
    });
    box.append(this.playButton, this.slider, this.counter);
    box.hidden = true;
    return box;
  }

  #pause() {
    clearInterval(this.#playTimer);
    this.#playTimer = 0;
    this.#label("▶", "Play");
  }
  #label(sign, name) {
    this.playButton.textContent = sign;
    this.playButton.title = name;
    this.playButton.setAttribute("aria-label", name);
  }
  #play() {
    if (this.#playTimer) return this.#pause();
    if (this.slider.value === this.slider.max) this.slider.value = 0;
    this.redraw();
    this.#label("⏸", "Pause");
    this.#playTimer = setInterval(() => {
      this.slider.value = Number(this.slider.value) + 1;
      this.redraw();
      if (this.slider.value === this.slider.max) this.#pause();
    }, Math.max(settings.interval, 60));
  }
}

/** The bar at the start of a block. */
function edge(block) {
  const bar = element("span", "edge");
  bar.dataset.status = block.status;
  bar.title = `block from ${block.start}, ${block.length} tokens, ${block.status}`;
  return bar;
}

/** Copies text. Pages over plain HTTP from another host have no clipboard API, so this falls back to copying a selection. */
async function copy(text) {
  try {
    return await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", "unseen", text), focus = document.activeElement;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    focus?.focus();
    if (!copied) throw new Error("copying failed");
  }
}

function copyButton(name, text) {
  const button = Object.assign(element("button", "", name), { type: "button" });
  button.addEventListener("click", async () => {
    button.textContent = await copy(text()).then(() => "copied", (e) => e.message);
    setTimeout(() => { button.textContent = name; }, 1000);
  });
  return button;
}
