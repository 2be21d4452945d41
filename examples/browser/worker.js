// Embeds sentences away from the page's thread. Messages: {id, texts} or {id, length}; answers: {id, ...}.
import { load } from "./model.js";
import { WordPiece } from "./wordpiece.js";

const start = performance.now();
const ready = Promise.all([load(), fetch("vocab.txt").then((file) => file.text())]).then(([model, text]) => {
  postMessage({ started: performance.now() - start });
  return { model, words: new WordPiece(text) };
});
ready.catch((error) => postMessage({ error: error.message }));

async function embed(model, rows) {
  const longest = Math.max(...rows.map((row) => row.length)), shape = [rows.length, longest];
  const ids = new BigInt64Array(rows.length * longest), mask = new BigInt64Array(ids.length);
  rows.forEach((row, line) => row.forEach((id, at) => {
    ids[line * longest + at] = BigInt(id);
    mask[line * longest + at] = 1n;
  }));
  const begun = performance.now();
  const made = await model.run({ input_ids: { data: ids, shape }, attention_mask: { data: mask, shape } });
  const { data, shape: [, width] } = made.sentence_embedding;
  return { took: performance.now() - begun, vectors: rows.map((_, line) => data.slice(line * width, (line + 1) * width)) };
}

onmessage = async ({ data: { id, texts, length } }) => {
  try {
    const { model, words } = await ready;
    const rows = texts ? texts.map((text) => words.encode(text)) : [Array(length).fill(2003)];
    const memory = model.memory({ batch: rows.length, seq: Math.max(...rows.map((row) => row.length)) });
    postMessage({ id, ...(await embed(model, rows)), tokens: rows.map((row) => row.length), memory, bytes: model.bytes });
  } catch (error) {
    postMessage({ id, error: error.message });
  }
};
