// The page: the settings, the conversation and the composer. card.js draws an answer.

import { curl, get, stream } from "./api.js";
import { Card, paintLegend } from "./card.js";
import { ParameterForm, save, settings } from "./settings.js";
import { templates } from "./templates.js";

const $ = (id) => document.getElementById(id);
const form = new ParameterForm($("rows"), $("find"));
const NEWS_MAX = 500;      // characters of an answer that a screen reader reads
const running = new Set(); // AbortControllers of the running requests
let messages = [];         // the conversation of side A
const cards = [];

const server = () => ({ base: settings.base, key: settings.key });

// ---- Server -----------------------------------------------------------------------------------------------------------

function status(state, text) {
  $("status").dataset.state = state;
  $("status").textContent = text;
}

const RETRY_MS = 3000;
let retryTimer = 0;

/** Fetches models and parameters from the server. Retries until the server answers. */
async function connect() {
  clearTimeout(retryTimer);
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
    retryTimer = setTimeout(connect, RETRY_MS);
  }
}

function askForKey() {
  status("error", "the server requires a key");
  showSettings(true);
  $("key").focus();
}

// ---- One answer -------------------------------------------------------------------------------------------------------

/** Returns the path and the body of a request. */
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

/** Shows an event on the card. The three endpoints have different events. */
function handleEvent(card, e) {
  if (e.usage) card.usage(e.usage);
  if (e.event === "buffer_snapshot") return card.snapshot(e);
  if (e.event === "append") return card.append(e.text, e.token_offset + e.token_ids.length, e.nfe);
  if (e.event === "final") {
    if (e.nfe) card.numbers.update(e.token_ids.length, e.nfe);
    card.numbers.engineTps = e.engine_decode_tps ?? card.numbers.engineTps;
    return card.finish(e.text, e.finish_reason);
  }
  const choice = e.choices?.[0];
  if (!choice) return;
  if (choice.delta?.reasoning_content) card.addReasoning(choice.delta.reasoning_content);
  const text = choice.delta?.content ?? choice.text ?? "";
  if (text) card.append(text, card.numbers.tokens + (choice.token_ids?.length ?? 1), card.numbers.nfe);
  if (choice.dllm) card.provisional(choice.dllm, choice.dllm.nfe);
  if (choice.finish_reason) card.reason.textContent = choice.finish_reason;
}

/** Shows an error on the card. A TypeError of fetch means that the server is unreachable. */
function fail(card, e) {
  card.fail(e.message + (e.param ? ` (${e.param})` : ""));
  if (e.status === 401) askForKey();
  else if (e instanceof TypeError) connect();
}

async function answer(card, path, body) {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(new Error(`no answer within ${settings.timeout} s`)), settings.timeout * 1000);
  running.add(controller);
  showButtons();
  try {
    for await (const e of stream(server(), path, body, controller.signal)) handleEvent(card, e);
    if (card.node.dataset.state !== "done") card.finish(null, card.reason.textContent);
  } catch (e) {
    if (controller.signal.aborted && controller.signal.reason === "stop") card.stopped();
    else fail(card, controller.signal.aborted ? controller.signal.reason : e);
  } finally {
    clearTimeout(timer);
    running.delete(controller);
    showButtons();
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
  resize($("prompt"));
  scrollToEnd();
  const [first, ...others] = await Promise.all(work);
  if ([first, ...others].every((c) => c.node.dataset.state === "failed") && !$("prompt").value) {
    $("prompt").value = text;
    resize($("prompt"));
  }
  if (template.kind === "chat" && first.node.dataset.state === "done")
    messages.push(...template.make(text).filter((m) => m.role === "user"), { role: "assistant", content: first.text });
  scrollToEnd();
}

function stopAll() {
  for (const controller of running) controller.abort("stop");
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

function showButtons() {
  $("send").hidden = running.size > 0;
  $("stop").hidden = running.size === 0;
}
function resize(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 2}px`;
}
function scrollToEnd() {
  const c = $("conversation");
  c.scrollTop = c.scrollHeight;
}
// Follows a growing answer, unless the reader has scrolled up.
new MutationObserver(() => {
  const c = $("conversation");
  if (running.size && c.scrollHeight - c.scrollTop - c.clientHeight < 200) scrollToEnd();
}).observe($("conversation"), { childList: true, subtree: true, characterData: true });

// ---- Settings ---------------------------------------------------------------------------------------------------------

const narrow = matchMedia("(max-width: 48rem)"); // as in style.css: the settings cover the page
const isOpen = () => document.body.classList.contains("with-settings");

function showSettings(open) {
  document.body.classList.toggle("with-settings", open);
  $("toggle-settings").setAttribute("aria-expanded", String(open));
  updateInert();
  settings.open = open;
  save();
}
/** Keys can't reach the parts of the page that the settings cover. */
function updateInert() {
  $("conversation").inert = $("composer").inert = narrow.matches && isOpen();
}
narrow.addEventListener("change", updateInert);

function selectSide(side) {
  form.side = side;
  $("side-a").setAttribute("aria-pressed", String(side === 0));
  $("side-b").setAttribute("aria-pressed", String(side === 1));
  form.fill();
}
function toggleTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  settings.theme = document.documentElement.dataset.theme = dark ? "light" : "dark";
  save();
}

/** Binds the input with this id to the setting of the same name. `after` runs now and after each change. */
function bind(id, after = () => {}) {
  const input = $(id), check = input.type === "checkbox";
  if (check) input.checked = settings[id];
  else input.value = settings[id];
  const update = () => {
    if (!input.checkValidity()) return;
    settings[id] = check ? input.checked : typeof settings[id] === "number" ? Number(input.value) : input.value;
    save();
    after();
  };
  input.addEventListener(check || input.tagName === "SELECT" ? "change" : "input", update);
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
  if (!settings.compare) selectSide(0);
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
$("side-a").addEventListener("click", () => selectSide(0));
$("side-b").addEventListener("click", () => selectSide(1));
$("reset").addEventListener("click", () => form.reset());
$("toggle-settings").addEventListener("click", () => showSettings(!isOpen()));
$("theme").addEventListener("click", toggleTheme);
$("clear").addEventListener("click", clear);
$("help").addEventListener("click", () => $("help-box").showModal());
$("stop").addEventListener("click", stopAll);
$("composer").addEventListener("submit", (e) => { e.preventDefault(); send(); });
$("prompt").addEventListener("input", () => resize($("prompt")));
$("prompt").addEventListener("keydown", (e) => {
  if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  send();
});

function onEscape() {
  stopAll();
  if (!narrow.matches || !isOpen()) return;
  showSettings(false);
  $("toggle-settings").focus();
}
const isTyping = () => /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
document.addEventListener("keydown", (e) => {
  const control = e.ctrlKey || e.metaKey;
  if (e.key === "Escape" && !$("help-box").open) onEscape();
  else if (control && e.key === ",") showSettings(!isOpen());
  else if (control && e.shiftKey && e.key.toLowerCase() === "o") clear();
  else if (e.key === "/" && !isTyping()) $("prompt").focus();
  else if (e.key === "?" && !isTyping()) $("help-box").showModal();
  else return;
  e.preventDefault();
});

if (settings.theme) document.documentElement.dataset.theme = settings.theme;
showSettings(settings.open ?? innerWidth > 1000);
paintLegend($("legend"));
connect();
