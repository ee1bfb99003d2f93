// The saved conversations, in local storage, the latest first. Their number and size are bounded. Another tab may change
// them at any time, so every change reads them again.

const STORE = "unmask.conversations";
const COUNT_MAX = 50;
const CHARS_MAX = 1_000_000; // of all together; browsers store about five million

// Another version of the page may have stored other forms. They are skipped.
const hasTexts = (o, ...names) => names.every((name) => typeof o?.[name] === "string");
const isAnswer = (a) => hasTexts(a, "text", "reasoning", "state", "reason", "side", "label");
const isTurn = (t) => hasTexts(t, "text", "suffix", "template") && Array.isArray(t.answers) && t.answers.every(isAnswer);
const isConversation = (c) =>
  hasTexts(c, "id") && Number.isFinite(c.time) && Array.isArray(c.turns) && c.turns.length > 0 && c.turns.every(isTurn);

/** Returns the conversations as {id, time, turns}, none if there is no storage. */
export function all() {
  try {
    const list = JSON.parse(localStorage.getItem(STORE));
    return Array.isArray(list) ? list.filter(isConversation) : [];
  } catch {
    return []; // no storage, or not JSON
  }
}

/** Stores as many of the conversations as fit, the first ones rather than the last. Returns the number. */
function write(list) {
  for (let n = Math.min(list.length, COUNT_MAX); n > 0; n--) {
    const text = JSON.stringify(list.slice(0, n));
    if (text.length > CHARS_MAX) continue;
    try {
      localStorage.setItem(STORE, text);
      return n;
    } catch { /* the storage is full: try fewer */ }
  }
  try {
    localStorage.removeItem(STORE);
  } catch { /* without storage there is nothing to remove */ }
  return 0;
}

/** Saves {id, time, turns} in place of the one with the same id. Returns false if that is impossible: it is too large, or the
    browser refuses. The others then stay. */
export function put(conversation) {
  const others = all().filter((c) => c.id !== conversation.id);
  if (JSON.stringify(conversation).length <= CHARS_MAX - 2 && write([conversation, ...others]) > 0) return true;
  write(others);
  return false;
}

export function remove(id) { write(all().filter((c) => c.id !== id)); }
export function removeAll() { write([]); }
