// The page: settings at the side, a conversation, a composer. Everything of an answer is in card.js.

import { curl, get, stream } from "./api.js";
import { Card, paintLegend } from "./card.js";
import { ParameterForm, save, settings } from "./settings.js";
import { templates } from "./templates.js";

const $ = (id) => document.getElementById(id);
const form = new ParameterForm($("rows"), $("find"));
const NEWS_MAX = 500;      // characters of an answer that are read out
const running = new Set(); // AbortControllers
let messages = [];         // of the conversation, side A
const cards = [];

const server = () => ({ base: settings.base, key: settings.key });

// ---- Server -----------------------------------------------------------------------------------------------------------

function status(state, text) {
  $("status").dataset.state = state;
  $("status").textContent = text;
}

const AGAIN_MS = 3000;
let again = 0; // the timer of the next attempt

/** Asks the server for its models and parameters, until there is one. */
async function connect() {
  clearTimeout(again);
  status("loading", "connecting");
  try {
    const models = (await get(server(), "/v1/models")).data;
    $("model").replaceChildren(...models.map((m) => new Option(m.id, m.id)));
    if (models.some((m) => m.id === settings.model)) $("model").value = settings.model;
    form.show((await get(server(), "/options")).data);
    status("ok", $("model").value);
  } catch (e) {
    if (e.status === 401) return askForKey();
    status("error", `no server: ${e.message}`);
    again = setTimeout(connect, AGAIN_MS);
  }
}

function askForKey() {
  status("error", "the server asks for a key");
  drawer(true);
  $("key").focus();
}

// ---- One answer -------------------------------------------------------------------------------------------------------

/** Path and body of a request. */
function requestOf(template, text, suffix, side) {
  const body = { model: $("model").value || undefined, ...form.values(side), stream: true, stream_mode: settings.mode };
  const made = template.make(text);
  if (template.kind === "chat") {
    const history = settings.history ? messages : [];
    body.messages = [...made.filter((m) => m.role === "system"), ...history, ...made.filter((m) => m.role !== "system")];
    body.stream_options = { include_usage: true };
    return ["/v1/chat/completions", body];
  }
  body.prompt = made;
  if (template.kind === "raw") return ["/generate", body];
  return ["/v1/completions", { ...body, suffix, stream_options: { include_usage: true } }];
}

/** One event of any of the three streams, to the card. */
function take(card, e) {
  if (e.usage) card.usage(e.usage);
  if (e.event === "buffer_snapshot") return card.snapshot(e);
  if (e.event === "append") return card.append(e.text, e.token_offset + e.token_ids.length, e.nfe);
  if (e.event === "final") {
    if (e.nfe) card.numbers.see(e.token_ids.length, e.nfe);
    card.numbers.engineTps = e.engine_decode_tps ?? card.numbers.engineTps;
    return card.finish(e.text, e.finish_reason);
  }
  const choice = e.choices?.[0];
  if (!choice) return;
  if (choice.delta?.reasoning_content) card.think(choice.delta.reasoning_content);
  const text = choice.delta?.content ?? choice.text ?? "";
  if (text) card.append(text, card.numbers.tokens + (choice.token_ids?.length ?? 1), card.numbers.nfe);
  if (choice.dllm) card.provisional(choice.dllm, choice.dllm.nfe);
  if (choice.finish_reason) card.reason.textContent = choice.finish_reason;
}

/** What is no answer of the server, and no time-out, means that it is gone. */
function fail(card, e) {
  card.fail(e.message + (e.param ? ` (${e.param})` : ""));
  if (e.status === 401) askForKey();
  else if (e instanceof TypeError) connect();
}

async function answer(card, path, body) {
  const stop = new AbortController();
  const late = setTimeout(() => stop.abort(new Error(`no answer within ${settings.timeout} s`)), settings.timeout * 1000);
  running.add(stop);
  buttons();
  try {
    for await (const e of stream(server(), path, body, stop.signal)) take(card, e);
    if (card.node.dataset.state !== "done") card.finish(null, card.reason.textContent);
  } catch (e) {
    if (stop.signal.aborted && stop.signal.reason === "stop") card.stopped();
    else fail(card, stop.signal.aborted ? stop.signal.reason : e);
  } finally {
    clearTimeout(late);
    running.delete(stop);
    buttons();
  }
  $("news").textContent = `${card.state.textContent}: ${card.text.slice(0, NEWS_MAX)}`;
  return card;
}

async function send() {
  const text = $("prompt").value, template = templates[Number($("template").value)];
  if (!text.trim() || running.size) return;
  const question = Object.assign(document.createElement("div"), { className: "question", textContent: text });
  const answers = Object.assign(document.createElement("div"), { className: "answers" });
  $("empty").hidden = true;
  $("conversation").append(question, answers);
  const sides = settings.compare ? [0, 1] : [0];
  const work = sides.map((side) => {
    const [path, body] = requestOf(template, text, $("suffix").value, side);
    const copies = { "copy text": (c) => c.text, "copy as curl": () => curl(server(), path, body) };
    const card = new Card(settings.compare ? "AB"[side] : "", copies);
    cards.push(card);
    answers.append(card.node);
    return answer(card, path, body);
  });
  $("prompt").value = "";
  grow($("prompt"));
  follow();
  const [first, ...others] = await Promise.all(work);
  if ([first, ...others].every((c) => c.node.dataset.state === "failed") && !$("prompt").value) {
    $("prompt").value = text;
    grow($("prompt"));
  }
  if (template.kind === "chat" && first.node.dataset.state === "done")
    messages.push(...template.make(text).filter((m) => m.role === "user"), { role: "assistant", content: first.text });
  follow();
}

function stopAll() {
  for (const stop of running) stop.abort("stop");
}

function clear() {
  stopAll();
  messages = [];
  cards.length = 0;
  $("conversation").replaceChildren($("empty"));
  $("empty").hidden = false;
  $("prompt").focus();
}

// ---- Composer ---------------------------------------------------------------------------------------------------------

function buttons() {
  $("send").hidden = running.size > 0;
  $("stop").hidden = running.size === 0;
}
function grow(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 2}px`;
}
/** Scrolls to the newest answer as it grows, unless the reader looks at something else. */
function follow() {
  const c = $("conversation");
  c.scrollTop = c.scrollHeight;
}
new MutationObserver(() => {
  const c = $("conversation");
  if (running.size && c.scrollHeight - c.scrollTop - c.clientHeight < 200) follow();
}).observe($("conversation"), { childList: true, subtree: true, characterData: true });

// ---- Settings ---------------------------------------------------------------------------------------------------------

const narrow = matchMedia("(max-width: 48rem)"); // as in style.css: the drawer covers the page
const isOpen = () => document.body.classList.contains("with-settings");

function drawer(open) {
  document.body.classList.toggle("with-settings", open);
  $("toggle-settings").setAttribute("aria-expanded", String(open));
  cover();
  settings.open = open;
  save();
}
/** What the drawer covers can't be reached by keys either. */
function cover() {
  $("conversation").inert = $("composer").inert = narrow.matches && isOpen();
}
narrow.addEventListener("change", cover);

function pick(side) {
  form.side = side;
  $("side-a").setAttribute("aria-pressed", String(side === 0));
  $("side-b").setAttribute("aria-pressed", String(side === 1));
  form.fill();
}
function theme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  settings.theme = document.documentElement.dataset.theme = dark ? "light" : "dark";
  save();
}

/** Ties a field to a setting of the same name. */
function bind(id, after = () => {}) {
  const input = $(id), check = input.type === "checkbox";
  if (check) input.checked = settings[id];
  else input.value = settings[id];
  const take = () => {
    if (!input.checkValidity()) return;
    settings[id] = check ? input.checked : typeof settings[id] === "number" ? Number(input.value) : input.value;
    save();
    after();
  };
  input.addEventListener(check || input.tagName === "SELECT" ? "change" : "input", take);
  after();
}

const redrawAll = () => cards.forEach((c) => c.redraw());
bind("base");
bind("key");
bind("timeout");
bind("mode");
bind("mask", redrawAll);
bind("interval", () => { $("interval-out").textContent = `${settings.interval} ms`; });
bind("colour", redrawAll);
bind("borders", redrawAll);
bind("history");
bind("compare", () => {
  $("sides").hidden = !settings.compare;
  if (!settings.compare) pick(0);
});
for (const id of ["base", "key"]) $(id).addEventListener("change", connect);
$("model").addEventListener("change", () => {
  settings.model = $("model").value;
  save();
  status("ok", settings.model);
});
$("template").replaceChildren(...templates.map((t, i) => new Option(t.name, i)));
$("template").addEventListener("change", () => {
  $("suffix").hidden = templates[Number($("template").value)].kind !== "infill";
});
$("side-a").addEventListener("click", () => pick(0));
$("side-b").addEventListener("click", () => pick(1));
$("reset").addEventListener("click", () => form.reset());
$("toggle-settings").addEventListener("click", () => drawer(!isOpen()));
$("theme").addEventListener("click", theme);
$("clear").addEventListener("click", clear);
$("help").addEventListener("click", () => $("help-box").showModal());
$("stop").addEventListener("click", stopAll);
$("composer").addEventListener("submit", (e) => { e.preventDefault(); send(); });
$("prompt").addEventListener("input", () => grow($("prompt")));
$("prompt").addEventListener("keydown", (e) => {
  if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  send();
});

function escape() {
  stopAll();
  if (!narrow.matches || !isOpen()) return;
  drawer(false);
  $("toggle-settings").focus();
}
const typing = () => /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
document.addEventListener("keydown", (e) => {
  const control = e.ctrlKey || e.metaKey;
  if (e.key === "Escape" && !$("help-box").open) escape();
  else if (control && e.key === ",") drawer(!isOpen());
  else if (control && e.shiftKey && e.key.toLowerCase() === "o") clear();
  else if (e.key === "/" && !typing()) $("prompt").focus();
  else if (e.key === "?" && !typing()) $("help-box").showModal();
  else return;
  e.preventDefault();
});

if (settings.theme) document.documentElement.dataset.theme = settings.theme;
drawer(settings.open ?? innerWidth > 1000);
paintLegend($("legend"));
connect();
