// The page: the bar, the settings, the saved conversations and the composer. chat.js has the conversation.

import { get, loadedShare } from "./api.js";
import { Chat } from "./chat.js";
import * as conversations from "./conversations.js";
import { button, element } from "./dom.js";
import { ParameterForm, save, settings } from "./settings.js";
import { templates } from "./templates.js";

const $ = (id) => document.getElementById(id);
const form = new ParameterForm($("rows"), $("find"));
const chat = new Chat($("conversation"), {
  server: () => server(),
  model: () => $("model").value || undefined,
  form,
  onRunning: showButtons,
  onFailure: (e) => {
    if (e.status === 401) askForKey();
    else if (e instanceof TypeError) connect(); // the server is unreachable
    else if (e.status === 503) followLoading(); // it may be loading its model again
  },
  onAnswered: keep,
  announce: (text) => { $("news").textContent = text; },
});

const server = () => ({ base: settings.base, key: settings.key });

// ---- Server -----------------------------------------------------------------------------------------------------------

function status(state, text) {
  $("status").dataset.state = state;
  if ($("status").textContent !== text) $("status").textContent = text; // a change is read aloud
}

const RETRY_MS = 3000, LOADING_MS = 500;
let timer = 0; // for the next connect() or followLoading()
let connections = 0; // calls of connect(); only the last one goes on
let models = [];

/** Fetches models and parameters from the server. Retries until the server answers. */
async function connect() {
  const own = ++connections;
  clearTimeout(timer);
  $("loaded").hidden = true;
  status("loading", "connecting");
  try {
    models = (await get(server(), "/v1/models")).data;
    $("model").replaceChildren(...models.map((m) => new Option(m.id, m.id)));
    if (models.some((m) => m.id === settings.model)) $("model").value = settings.model;
    $("model-row").hidden = models.length < 2;
    form.show((await get(server(), "/options")).data);
    showExamples();
  } catch (e) {
    if (e.status === 401) return askForKey();
    status("error", `no server: ${e.message}`);
    timer = setTimeout(connect, RETRY_MS);
    return;
  }
  followLoading(own);
}

/** Shows how much of the model has been loaded, until all of it has. Servers that don't tell count as ready. */
async function followLoading(own = connections) {
  const wasLoading = !$("loaded").hidden;
  let share;
  try {
    share = await loadedShare(server());
  } catch {
    if (own === connections && wasLoading) return connect();
  }
  if (own !== connections) return;
  $("loaded").hidden = share === undefined;
  showStatus();
  if (share === undefined) return;
  $("loaded").firstElementChild.value = share;
  $("loaded").lastElementChild.textContent = `${Math.floor(100 * share)} %`;
  clearTimeout(timer);
  timer = setTimeout(followLoading, LOADING_MS);
}

/** Shows whether the chosen model is ready. */
function showStatus() {
  const isReady = $("loaded").hidden;
  status(isReady ? "ok" : "loading", isReady ? $("model").value : `loading ${$("model").value}`);
}

function askForKey() {
  status("error", "the server requires a key");
  showSettings(true);
  $("server").open = true;
  $("key").focus();
}

const EXAMPLES_MAX = 3;
const GENERAL_EXAMPLES = [
  "Explain in two sentences how a rainbow forms.",
  "Write a Python function that reverses a string.",
  "A book has 110 pages. I read 12 pages a day for 8 days. How many pages are left?",
];

/** Shows the example prompts of the chosen model's card. */
function showExamples() {
  const chosen = models.find((m) => m.id === $("model").value) ?? models[0];
  const own = [chosen, models[0]].map((m) => m?.examples).find((e) => Array.isArray(e) && e.length > 0);
  const texts = (own ?? GENERAL_EXAMPLES).filter((t) => typeof t === "string").slice(0, EXAMPLES_MAX);
  $("try").textContent = own ? `${chosen.id} can do things like these:` : "Try one of these:";
  $("examples").replaceChildren(...texts.map((text) => element("li", "", button(text, () => ask(text)))));
}

// ---- The conversation -------------------------------------------------------------------------------------------------

/** Asks the text, in the chosen template. */
async function ask(text) {
  if (!text.trim() || chat.isRunning) return;
  $("empty").hidden = true;
  const asked = chat.ask({ text, suffix: $("suffix").value, template: templates[Number($("template").value)] });
  $("prompt").value = "";
  resize($("prompt"));
  scrollToEnd();
  const turn = await asked;
  if (turn.cards.every((c) => c.node.dataset.state === "failed") && !$("prompt").value) {
    $("prompt").value = text;
    resize($("prompt"));
  }
}

function clear() {
  chat.clear();
  $("empty").hidden = false;
  $("prompt").focus();
}

// ---- Saved conversations ----------------------------------------------------------------------------------------------

/** Saves the conversation after the answers of a turn, unless all of them failed. */
function keep(turn) {
  if (!settings.keep || turn.cards.every((c) => c.node.dataset.state === "failed")) return;
  if (!conversations.put(JSON.parse(JSON.stringify(chat))))
    $("news").textContent = "The conversation could not be saved in this browser.";
}

function showSaved() {
  const list = conversations.all();
  $("saved-note").textContent = !settings.keep ? "Saving is switched off in the settings, under View."
    : list.length ? "They stay in this browser." : "There are none yet. They stay in this browser.";
  $("saved-list").replaceChildren(...list.map((c) => {
    const title = c.turns[0].text.trim();
    const open = button("", () => restore(c), "open");
    const time = new Date(c.time).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    open.append(element("span", "title", title), element("time", "", time));
    const gone = button("✕", () => { conversations.remove(c.id); showSaved(); }, "quiet");
    gone.title = "Delete";
    gone.setAttribute("aria-label", `Delete: ${title.slice(0, 80)}`);
    return element("li", "", open, gone);
  }));
  $("forget").hidden = list.length === 0;
  if (!$("saved-box").open) $("saved-box").showModal();
}

function restore(conversation) {
  $("saved-box").close();
  $("empty").hidden = true;
  chat.restore(conversation);
  scrollToEnd();
  $("prompt").focus();
}

// ---- Composer ---------------------------------------------------------------------------------------------------------

function showButtons() {
  $("send").hidden = chat.isRunning;
  $("stop").hidden = !chat.isRunning;
  document.body.classList.toggle("running", chat.isRunning);
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
  if (chat.isRunning && c.scrollHeight - c.scrollTop - c.clientHeight < 200) scrollToEnd();
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

const redrawAll = () => chat.cards.forEach((c) => c.redraw());
for (const id of ["base", "key", "timeout", "mode", "history", "finished", "slow", "keep"]) bind(id);
bind("interval", () => { $("interval-out").textContent = `${settings.interval} ms`; });
bind("colour", redrawAll);
bind("borders", redrawAll);
bind("compare", () => {
  $("sides").hidden = !settings.compare;
  if (!settings.compare) selectSide(0);
});
for (const id of ["base", "key"]) $(id).addEventListener("change", connect);
$("model").addEventListener("change", () => {
  settings.model = $("model").value;
  save();
  showStatus();
  showExamples();
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
$("saved").addEventListener("click", showSaved);
$("forget").addEventListener("click", () => {
  if (confirm("Delete all saved conversations?")) conversations.removeAll();
  showSaved();
});
$("help").addEventListener("click", () => $("help-box").showModal());
$("stop").addEventListener("click", () => chat.stop());
$("composer").addEventListener("submit", (e) => { e.preventDefault(); ask($("prompt").value); });
$("prompt").addEventListener("input", () => resize($("prompt")));
$("prompt").addEventListener("keydown", (e) => {
  if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  ask($("prompt").value);
});

function onEscape() {
  chat.stop();
  if (!narrow.matches || !isOpen()) return;
  showSettings(false);
  $("toggle-settings").focus();
}
const isTyping = () => /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
document.addEventListener("keydown", (e) => {
  if (document.querySelector("dialog[open]")) return;
  const control = e.ctrlKey || e.metaKey;
  if (e.key === "Escape") onEscape();
  else if (control && e.key === ",") showSettings(!isOpen());
  else if (control && e.shiftKey && e.key.toLowerCase() === "o") clear();
  else if (e.key === "/" && !isTyping()) $("prompt").focus();
  else if (e.key === "?" && !isTyping()) $("help-box").showModal();
  else return;
  e.preventDefault();
});

if (settings.theme) document.documentElement.dataset.theme = settings.theme;
showSettings(settings.open ?? innerWidth > 1000);
connect();
