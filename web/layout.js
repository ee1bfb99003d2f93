// Keeps the words of a running answer in place. Each mask is a tile, about as wide as a word. A word that is narrower than its
// tile leaves the rest of it empty. A wider word takes room from the masks and the empty rests after it, and moves the words
// behind it only if these have no room. It knows nothing about the page.

const NARROWEST = 8; // pixels of a mask
const WIDEST = 70;
const ENOUGH = 8;    // words whose mean width counts

export class Layout {
  static #usual = 34; // pixels of a mask: the mean width of the words so far, of all answers
  #measure;           // returns the width of a text in pixels
  #columns = [];      // where each position began in the last frame, in pixels, as if the answer were one line
  #settled = 0;
  #isMeasured = false;

  constructor(measure) { this.#measure = measure; }

  /** Returns the width of each tile, undefined for ordinary text: the blocks before position `settled`, which are finished, and
      words with a line break. When a block is finished, its rests close, and the text behind it moves up once. */
  place(cells, settled) {
    if (settled > this.#settled) this.#columns = [];
    this.#settled = settled;
    const was = this.#columns, sizes = [], columns = [], usual = this.#widthOfMasks(cells);
    for (let i = 0, x = 0; i < cells.length;) {
      if (cells[i].pass >= 0) {
        const own = this.#measure(cells[i].text), isTile = i >= settled && !cells[i].text.includes("\n");
        const width = isTile ? Math.max(own, (was[i + 1] ?? x) - x) : own;
        sizes.push(isTile ? width : undefined);
        columns.push(x);
        x += width;
        i++;
        continue;
      }
      let end = i; // of the masks from here on
      while (end < cells.length && cells[end].pass < 0) end++;
      const word = end < cells.length ? was[end] : undefined;
      const share = word === undefined ? usual : Math.max(NARROWEST, (word - x) / (end - i));
      for (; i < end; i++, x += share) {
        sizes.push(share);
        columns.push(x);
      }
    }
    this.#columns = columns;
    return sizes;
  }

  /** The masks of an answer get another width only once, so that they stay in place, too. */
  #widthOfMasks(cells) {
    const words = this.#isMeasured ? [] : cells.filter((c) => c.pass >= 0);
    if (words.length >= ENOUGH) {
      const mean = words.reduce((sum, c) => sum + this.#measure(c.text), 0) / words.length;
      Layout.#usual = Math.min(WIDEST, Math.max(NARROWEST, mean));
      this.#isMeasured = true;
    }
    return Layout.#usual;
  }
}
