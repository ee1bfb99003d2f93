// Renders the Markdown of an answer as DOM nodes: headings, lists, quotes, tables, code, emphasis and links. The text is
// untrusted. Nothing is parsed as HTML, links are http or https only, and images are not loaded.

const DEPTH_MAX = 8;       // nested lists and quotes; deeper ones stay text
const INLINE_MAX = 5000;   // characters of a paragraph; the marks of longer ones stay text

const element = (tag, ...children) => {
  const e = document.createElement(tag);
  e.append(...children);
  return e;
};

// ---- Inside a paragraph -----------------------------------------------------------------------------------------------

const inline = [
  { pattern: /(?<!`)(`+)(?!`)([^]*?[^`])\1(?!`)/, make: (m) => element("code", m[2].trim() || m[2]) },
  { pattern: /!?\[([^[\]\n]+)\]\((https?:\/\/[^\s()]+)\)/i, make: (m) => link(m[2], m[1]) },
  { pattern: /\bhttps?:\/\/[^\s<>"'`*]+[^\s<>"'`*.,:;!?)\]]/i, make: (m) => link(m[0], m[0]) },
  { pattern: /\*\*(?=\S)([^]*?\S)\*\*/, make: (m) => element("strong", ...spans(m[1])) },
  { pattern: /(?<![*\w])\*(?![\s*])([^*\n]*[^\s*])\*(?![*\w])/, make: (m) => element("em", ...spans(m[1])) },
  { pattern: /(?<![_\w])_(?![\s_])([^_\n]*[^\s_])_(?![_\w])/, make: (m) => element("em", ...spans(m[1])) },
];

/** Returns a link in a new tab that does not reach this page, or the text if the address is invalid. */
function link(address, text) {
  try {
    new URL(address);
  } catch {
    return text;
  }
  return Object.assign(element("a", text), { href: address, target: "_blank", rel: "noopener noreferrer" });
}

/** Returns the nodes and strings of a text with marks. */
function spans(text) {
  if (text.length > INLINE_MAX) return [text];
  const out = [];
  const next = inline.map(() => undefined); // the next match of each pattern, null if there is none
  for (let at = 0; ;) {
    inline.forEach(({ pattern }, i) => {
      if (next[i] === undefined || (next[i] && next[i].index < at)) next[i] = matchFrom(pattern, text, at);
    });
    const first = next.reduce((a, m, i) => (m && (a < 0 || m.index < next[a].index) ? i : a), -1);
    if (first < 0) return [...out, text.slice(at)].filter((s) => s !== "");
    out.push(text.slice(at, next[first].index), inline[first].make(next[first]));
    at = next[first].index + next[first][0].length;
  }
}
function matchFrom(pattern, text, at) {
  const p = new RegExp(pattern.source, `${pattern.flags}g`);
  p.lastIndex = at;
  return p.exec(text);
}

// ---- Blocks -----------------------------------------------------------------------------------------------------------

const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( +)(?=\S)/;
const RULE = /^ {0,3}([-*_])( *\1){2,} *$/;
const isBlank = (line) => line.trim() === "";
const indentOf = (line) => line.length - line.trimStart().length;
const cellsOf = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((c) => c.trim());

// A rule takes the lines and the place where it may start. It returns [node, place behind it], or null.

function fence(lines, i) {
  const open = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/.exec(lines[i]);
  if (!open) return null;
  let end = i + 1;
  while (end < lines.length && !(lines[end].trim().startsWith(open[1]) && /^(`+|~+)$/.test(lines[end].trim()))) end++;
  const code = element("code", lines.slice(i + 1, end).join("\n"));
  const block = element("pre", code);
  if (open[2]) block.dataset.language = open[2];
  return [block, end + 1];
}
function heading(lines, i) {
  const m = /^ {0,3}(#{1,6})\s+(.*?)(\s+#+)?\s*$/.exec(lines[i]);
  return m && [element(`h${Math.min(6, m[1].length + 2)}`, ...spans(m[2])), i + 1]; // the page's own headings are h1 and h2
}
function rule(lines, i) {
  return RULE.test(lines[i]) ? [element("hr"), i + 1] : null;
}
function quote(lines, i, depth) {
  let end = i;
  while (end < lines.length && /^ {0,3}>/.test(lines[end])) end++;
  if (end === i) return null;
  return [element("blockquote", ...blocks(lines.slice(i, end).map((l) => l.replace(/^ {0,3}> ?/, "")), depth + 1)), end];
}
function list(lines, i, depth) {
  const first = ITEM.exec(lines[i]);
  if (!first || RULE.test(lines[i])) return null;
  const kind = (m) => (/\d/.test(m[2]) ? "ol" : "ul");
  const node = element(kind(first));
  if (kind(first) === "ol") node.start = parseInt(first[2], 10);
  let width = 0;
  const items = [];
  for (; i < lines.length; i++) {
    const m = ITEM.exec(lines[i]);
    if (m && (!items.length || indentOf(lines[i]) < width)) {
      if (kind(m) !== kind(first)) break;
      width = m[0].length;
      items.push([lines[i].slice(width)]);
    } else if (isBlank(lines[i])) {
      const next = lines.slice(i, i + 3).find((l) => !isBlank(l)) ?? "";
      if (indentOf(next) < 2 && !ITEM.test(next)) break;
      items.at(-1).push("");
    } else if (indentOf(lines[i]) >= 2) items.at(-1).push(lines[i].slice(Math.min(indentOf(lines[i]), width)));
    else break;
  }
  node.append(...items.map((item) => element("li", ...unwrapped(blocks(item, depth + 1)))));
  return [node, i];
}
/** An item that begins with a paragraph has its text without a box around it. */
function unwrapped(nodes) {
  return nodes[0]?.tagName === "P" ? [...nodes[0].childNodes, ...nodes.slice(1)] : nodes;
}
function table(lines, i) {
  const dashes = lines[i + 1] ?? "";
  if (!lines[i].includes("|") || !dashes.includes("-") || !/^[\s|:-]+$/.test(dashes)) return null;
  const columns = cellsOf(lines[i]).length;
  if (cellsOf(dashes).length !== columns) return null;
  const row = (line, tag) => element("tr", ...cellsOf(line).slice(0, columns).map((c) => element(tag, ...spans(c))));
  const node = element("table", element("thead", row(lines[i], "th")));
  const body = node.appendChild(element("tbody"));
  for (i += 2; i < lines.length && lines[i].includes("|"); i++) body.append(row(lines[i], "td"));
  return [node, i];
}
const rules = [fence, heading, rule, quote, list, table];
const start = (lines, i, depth) => {
  for (const r of depth < DEPTH_MAX ? rules : []) {
    const found = r(lines, i, depth);
    if (found) return found;
  }
  return null;
};
/** Whether a line ends the paragraph before it. A number in running text, as in "1999. It", begins no list. */
const interrupts = (line) => isBlank(line) || /^ {0,3}(#{1,6}\s|>|```|~~~|[-*+] +\S|1[.)] +\S)/.test(line) || RULE.test(line);

/** Returns the nodes of some lines. */
function blocks(lines, depth) {
  const out = [];
  for (let i = 0; i < lines.length;) {
    if (isBlank(lines[i])) {
      i++;
      continue;
    }
    const found = start(lines, i, depth);
    if (found) {
      out.push(found[0]);
      i = found[1];
      continue;
    }
    const from = i++;
    while (i < lines.length && !interrupts(lines[i])) i++;
    out.push(element("p", ...spans(lines.slice(from, i).join("\n"))));
  }
  return out;
}

/** Returns the nodes of a Markdown text. */
export const render = (text) => blocks(text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n"), 0);
