// In node: the ids of texts by an exported tokenizer.js, with and without special tokens, and the texts of ids.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { script, file, texts, ids } = JSON.parse(readFileSync(0, "utf8"));
const { Tokenizer } = await import(pathToFileURL(script));
let found;
try {
  const tokenizer = new Tokenizer(file);
  found = {
    whole: texts.map((text) => tokenizer.encode(text).ids),
    plain: texts.map((text) => tokenizer.encode(text, { add_special_tokens: false }).ids),
    texts: ids.map((each) => tokenizer.decode(each)),
    all: ids.map((each) => tokenizer.decode(each, { skip_special_tokens: false })),
  };
} catch (error) {
  found = { error: error.message };
}
console.log(JSON.stringify(found));
