// Tokens a second of processor time of a language model exported for wasm32, by rounds; on several threads of
// the time that passes:
//   taskset -c 0 node bench/language_models/tokens.mjs FOLDER [relaxed | plain] [THREADS]
import { pathToFileURL } from "node:url";

const [folder, kind, threads = "1"] = process.argv.slice(2);
const { load } = await import(pathToFileURL(`${folder}/model.js`));
const spent = () => Object.values(process.cpuUsage()).reduce((sum, part) => sum + part) / 1e6;
const seconds = () => (threads === "1" ? spent() : performance.now() / 1e3);

const begin = seconds();
const lm = await load({ relaxed: kind === "relaxed", threads: Number(threads), tokenizer: null });
console.log(`load ${(seconds() - begin).toFixed(2)} s, ${(lm.bytes / 2 ** 20).toFixed(0)} MiB of memory`);
const length = Math.min(128, lm.context >> 1);
for (let round = 0; round < 4; round++) {
  const prompt = Array.from({ length }, (_, n) => (n * 7919 + round * 31 + 5) % lm.vocabulary);
  let start = seconds(), count = 0;
  for await (const token of lm.tokens(prompt, { maxTokens: 48 })) {
    if (count++) continue;
    console.log(`prompt ${(length / (seconds() - start)).toFixed(1)} tokens/s`);
    start = seconds();
  }
  if (count > 1) console.log(`new    ${((count - 1) / (seconds() - start)).toFixed(1)} tokens/s`);
}
