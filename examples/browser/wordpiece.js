// The tokenizer of BERT's uncased models: words without accents, and their longest pieces in a vocabulary.

const LONGEST_WORD = 100;
const SINGLE = /[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u{20000}-\u{2ceaf}\u{2f800}-\u{2fa1f}]|[\p{P}$+<=>^`|~]/gu;

export class WordPiece {
  /** `vocabulary` is a text with a piece in each line. */
  constructor(vocabulary, longest = 512) {
    this.numbers = new Map(vocabulary.trimEnd().split("\n").map((piece, number) => [piece.trimEnd(), number]));
    this.longest = longest;
  }

  /** The numbers of the pieces of a text, between those of [CLS] and [SEP]. */
  encode(text) {
    const plain = text.replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cn}\ufffd]/gu, (found) => (/[\t\n\r]/.test(found) ? " " : ""));
    const words = plain.normalize("NFD").replace(/\p{Mn}/gu, "").toLowerCase().replace(SINGLE, " $& ").split(/\s+/u);
    const pieces = words.filter(Boolean).flatMap((word) => this.#pieces(word));
    const number = (name) => this.numbers.get(name);
    return [number("[CLS]"), ...pieces.slice(0, this.longest - 2), number("[SEP]")];
  }

  #pieces(word) {
    const letters = [...word], unknown = [this.numbers.get("[UNK]")], found = [];
    if (letters.length > LONGEST_WORD) return unknown;
    for (let start = 0; start < letters.length; ) {
      let end = letters.length, number;
      for (; end > start; end--) {
        number = this.numbers.get((start ? "##" : "") + letters.slice(start, end).join(""));
        if (number !== undefined) break;
      }
      if (end === start) return unknown;
      found.push(number);
      start = end;
    }
    return found;
  }
}
