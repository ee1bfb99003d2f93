// A card shows one answer: its text during denoising, its numbers, and at the end a slider over its passes. A finished
// answer has two views: "text" is the answer as Markdown, "passes" colours each token by its pass.

import { copyButton, element, toggle } from "./dom.js";
import { Film, Numbers } from "./film.js";
import { Layout } from "./layout.js";
import { render } from "./markdown.js";
import { Replay } from "./replay.js";
import { settings } from "./settings.js";

const HOLD_MS = 400;  // an answer is not drawn before this time, as it may be replayed
const FAST_MS = 1000; // a faster answer is replayed
const fixed = (v, digits, unit = "") => (v === null || v === undefined ? "–" : v.toFixed(digits) + unit);
const isCalm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Returns a function that measures texts in the font of a node, in pixels. */
function measureIn(node) {
  const pen = document.createElement("canvas").getContext("2d"), widths = new Map();
  return (text) => {
    if (!widths.size) pen.font = getComputedStyle(node).font;
    if (!widths.has(text)) widths.set(text, pen.measureText(text).width);
    return widths.get(text);
  };
}

export class Card {
  film = new Film();
  numbers = new Numbers();
  text = "";       // settled text
  reasoning = "";  // the reasoning, if the server separates it from the text
  view = "passes"; // or "text"
  #spans = [];     // one per position
  #keys = [];      // the content that each span shows
  #final = [];     // the text of each position of the finished answer, null for a mask
  #provisional = { text: "", masks: 0 };
  #live = true;    // the answer is not finished
  #drawn = 0;      // the time of the last redraw
  #timer = 0;      // of the next redraw
  #layout;

  /** `label` says which settings the answer has, "" if no other answer stands beside it. `side` is "A", "B" or "". */
  constructor({ side = "", label = "", tools = [] }) {
    this.side = side;
    this.label = label;
    this.state = element("span", "state", "waiting");
    this.reason = element("span", "reason"); // the finish reason
    this.views = toggle("View", { text: "Text", passes: "Passes" }, (view) => this.show(view));
    this.views.node.hidden = true;
    this.body = element("div", "text live");
    this.body.setAttribute("aria-live", "off");
    this.#layout = new Layout(measureIn(this.body));
    this.replay = new Replay(() => { this.view = "passes"; this.redraw(); });
    this.legend = element("p", "legend");
    this.list = element("dl", "numbers");
    this.tools = element("div", "tools", ...tools.map((make) => make(this)));
    const head = element("header", "", ...(side ? [element("span", "side", side)] : []), this.state, this.reason,
      this.views.node, ...(side ? [element("span", "label", label)] : []));
    this.node = element("article", "card", head, this.body, this.replay.node, this.legend, this.list, this.tools);
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
    this.#provisional = { text: "", masks: 0 };
    this.numbers.update(tokens, nfe);
    this.#scheduleRedraw();
  }
  addReasoning(text) {
    this.reasoning += text;
    this.#scheduleRedraw();
  }
  provisional(d, nfe) {
    this.#provisional = { text: d.provisional_text, masks: d.mask_count };
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
    if (settings.slow && !isCalm() && this.film.length > 1 && this.numbers.seconds * 1000 < FAST_MS) this.#playOnce();
  }
  stopped() { this.#end("stopped", ""); }
  fail(message) {
    this.#end("failed", "");
    const why = element("p", "failure", message);
    why.setAttribute("role", "alert");
    this.body.after(why);
  }

  /** Shows the answer of a saved conversation. It has no film. */
  restore(saved) {
    Object.assign(this, { text: saved.text, reasoning: saved.reasoning, numbers: Numbers.of(saved.numbers) });
    this.#end(saved.state, saved.reason);
  }
  toJSON() {
    return { side: this.side, label: this.label, text: this.text, reasoning: this.reasoning, numbers: this.numbers,
             state: this.node.dataset.state, reason: this.reason.textContent };
  }

  #end(state, reason) {
    const hasFilm = this.film.length > 1;
    this.numbers.finish();
    this.#live = false;
    this.#provisional = { text: "", masks: 0 };
    clearTimeout(this.#timer);
    this.state.textContent = state === "done" ? `done in ${this.numbers.seconds.toFixed(2)} s` : state;
    this.reason.textContent = reason === "stop" ? "" : reason; // "stop" is the usual reason
    this.body.classList.remove("live");
    this.body.style.minHeight = "";
    if (this.film.length) this.#final = this.film.at(this.film.length - 1).cells.map((c) => (c.pass < 0 ? null : c.text));
    if (state !== "done") this.text ||= this.#final.filter((t) => t !== null).join("");
    this.replay.open(hasFilm ? this.film.length : 0);
    this.views.node.hidden = !hasFilm || state !== "done";
    this.node.dataset.state = state;
    this.show(this.#preferred());
  }

  /** A comparison shows the passes. An answer that has not finished has no Markdown, as its end is missing. */
  #preferred() {
    if (this.node.dataset.state !== "done") return this.film.length ? "passes" : "text";
    return this.film.length && (this.side || settings.finished === "passes") ? "passes" : "text";
  }

  /** Replays a fast answer slowly, then shows it as it is usually shown. */
  async #playOnce() {
    const state = this.state.textContent;
    this.state.textContent = `slow replay, ${this.numbers.seconds.toFixed(2)} s`;
    const whole = await this.replay.play();
    this.state.textContent = state;
    if (whole) this.show(this.#preferred());
  }

  // ---- Drawing ----

  /** Redraws now, or when the redraw interval since the last time is over. */
  #scheduleRedraw() {
    if (this.#timer) return;
    const earliest = settings.slow && !isCalm() && this.film.length ? this.numbers.sent + HOLD_MS : 0;
    const wait = Math.max(0, Math.max(this.#drawn + settings.interval, earliest) - performance.now());
    this.#timer = setTimeout(() => requestAnimationFrame(() => { if (this.#live) this.redraw(); }), wait);
  }

  show(view) {
    this.replay.pause();
    this.view = view;
    if (view === "passes") this.replay.toEnd();
    this.redraw();
  }

  redraw() {
    this.#timer = 0;
    this.#drawn = performance.now();
    if (this.#live) this.state.textContent = this.numbers.first === null ? "waiting" : "writing";
    const asPasses = this.film.length > 0 && this.view === "passes";
    if (asPasses) this.#drawFilm(this.#live ? this.film.length - 1 : this.replay.at - 1);
    else this.#drawText();
    this.views.press(this.view);
    this.legend.hidden = !asPasses;
    this.#drawNumbers();
  }

  #drawText() {
    this.#spans = [];
    this.#keys = [];
    this.body.classList.remove("coloured", "moving");
    const { text, masks } = this.#provisional;
    const parts = this.node.dataset.state === "done" ? render(this.text) : [this.text, element("span", "provisional", text)];
    const reasoning = this.reasoning ? [element("div", "reasoning", this.reasoning)] : [];
    this.body.replaceChildren(...reasoning, ...parts, ...Array.from({ length: masks }, () => maskBox()));
    for (const code of this.body.querySelectorAll("pre > code"))
      code.before(element("span", "language", code.parentElement.dataset.language ?? ""), copyButton("copy", () => code.textContent));
  }

  #drawFilm(k) {
    const { nfe, blocks, cells } = this.film.at(k);
    const starts = settings.borders ? blocks : new Map();
    const still = !this.#live && k === this.film.length - 1; // the finished answer has no highlighted changes
    if (this.#spans.length === 0) this.body.replaceChildren();
    this.body.classList.toggle("coloured", settings.colour);
    this.body.classList.toggle("moving", !still);
    this.body.style.setProperty("--passes", this.film.passes);
    const n = Math.max(cells.length, this.#final.length);
    while (this.#spans.length < n) this.#spans.push(this.body.appendChild(element("span")));
    while (this.#spans.length > n) this.#spans.pop().remove();
    this.#keys.length = n;
    const sizes = this.#live ? this.#layout.place(cells, firstActive(blocks)) : [];
    cells.forEach((c, i) => this.#drawCell(i, c, still ? "" : c.change, starts.get(i), sizes[i]));
    for (let i = cells.length; i < n; i++) this.#drawLater(i);
    if (this.#live) this.body.style.minHeight = `${Math.max(parseFloat(this.body.style.minHeight) || 0, this.body.scrollHeight)}px`;
    this.replay.caption(nfe, this.film.passes);
    this.#drawLegend();
  }

  /** `size` is the width of a tile in a running answer. In a finished one, a mask covers the text that it will become, so
      nothing moves. */
  #drawCell(i, c, change, block, size) {
    const masked = c.pass < 0, hidden = masked ? this.#final[i] ?? null : null;
    const text = masked ? hidden ?? "" : c.text;
    const kind = masked ? `mask${hidden === null ? " open" : ""}` : `token${size === undefined ? "" : " tile"}`;
    const classes = `${kind} ${change}${block ? " starts" : ""}${block?.status === "ACTIVE" ? " active" : ""}`;
    const width = size === undefined ? "" : `${size.toFixed(1)}px`;
    const key = `${text}\0${classes}\0${c.pass}\0${block?.status ?? ""}\0${width}`;
    if (this.#keys[i] === key) return;
    this.#keys[i] = key;
    const span = this.#spans[i];
    if (span.textContent !== text) span.textContent = text;
    span.className = classes;
    span.ariaHidden = masked ? "true" : null;
    span.style.width = width;
    span.title = titleOf(i, c, block);
    if (!masked) span.style.setProperty("--pass", c.pass);
  }
  /** A position that the shown pass did not have yet only takes its room. */
  #drawLater(i) {
    if (this.#keys[i] === "later") return;
    this.#keys[i] = "later";
    this.#spans[i].textContent = this.#final[i] ?? "";
    this.#spans[i].className = "later";
    this.#spans[i].ariaHidden = "true";
  }

  /** The key to the colours that this answer has. */
  #drawLegend() {
    const { changes, passes } = this.film;
    const key = [settings.colour, settings.borders, passes, this.#live, ...changes].join();
    if (this.legend.dataset.key === key) return;
    this.legend.dataset.key = key;
    const sign = (className, meaning, text = "") => element("span", "sign", element("span", className, text), meaning);
    this.legend.replaceChildren(
      sign("mask open", "mask"), sign("token fresh", "written in this pass"),
      ...(changes.has("edited") ? [sign("token edited", "replaced")] : []),
      ...(changes.has("remasked") ? [sign("mask open remasked", "masked again")] : []),
      ...(settings.colour && !this.#live ? [element("span", "sign", "pass 1", element("span", "ramp"), String(passes))] : []),
      ...(settings.borders ? [sign("bar", "start of a block")] : []));
  }

  #drawNumbers() {
    const n = this.numbers;
    const rows = {
      tokens: String(n.tokens), passes: String(n.nfe || "–"), "tokens/forward": fixed(n.tpf, 2), "tokens/s": fixed(n.tps, 1),
      "first token": fixed(n.ttft, 0, " ms"), prompt: n.prompt === null ? "–" : String(n.prompt),
      cached: n.cached === null ? "–" : String(n.cached), "engine tokens/s": fixed(n.engineTps, 1),
    };
    this.list.replaceChildren(...Object.entries(rows).map(([name, value]) => {
      const pair = element("div", "", element("dt", "", name === "prompt" ? "prompt tokens" : name), element("dd", "", value));
      pair.dataset.name = name;
      return pair;
    }));
  }
}

const maskBox = () => Object.assign(element("span", "mask open"), { ariaHidden: "true" });

/** Where the first block in flight begins. */
function firstActive(blocks) {
  let first = Infinity;
  for (const [start, b] of blocks) if (b.status !== "IN_CACHE") first = Math.min(first, start);
  return first === Infinity ? 0 : first;
}

function titleOf(i, c, block) {
  const where = block ? `block from ${block.start}, ${block.length} tokens, ${block.status}; position ${i}` : `position ${i}`;
  if (c.pass < 0) return where;
  return `${where}, token ${c.id}, pass ${c.pass}` + (c.confidence === null ? "" : `, probability ${c.confidence.toFixed(3)}`);
}
