// Runs the calls of a file of JSON in one instance of an exported model: calls.mjs FOLDER < calls > answers
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { folder, options, calls, together } = JSON.parse(readFileSync(0, "utf8"));
const { load, ModelError } = await import(pathToFileURL(`${folder}/model.js`));

const ARRAYS = {
  float64: Float64Array, float32: Float32Array, float16: Uint16Array, int64: BigInt64Array, uint64: BigUint64Array,
  int32: Int32Array, uint32: Uint32Array, int16: Int16Array, uint16: Uint16Array, int8: Int8Array, uint8: Uint8Array,
  bool: Uint8Array,
};

function tensor({ dtype, shape, data }) {
  const bytes = Uint8Array.from(Buffer.from(data, "base64"));
  return { data: new ARRAYS[dtype](bytes.buffer), shape };
}

const text = ({ data }) => Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64");

async function answer(model, call) {
  try {
    if (call.code) return { value: await new Function("model", `return (async () => ${call.code})()`)(model) };
    const inputs = Object.fromEntries(Object.entries(call.inputs).map(([name, value]) => [name, tensor(value)]));
    const made = await model.run(inputs);
    return { outputs: Object.fromEntries(Object.entries(made).map(([name, value]) => [name, { shape: value.shape, data: text(value) }])) };
  } catch (error) {
    return { error: error.message, ours: error instanceof ModelError };
  }
}

const answers = [];
try {
  const model = await load(options);
  if (together) answers.push(...(await Promise.all(calls.map((call) => answer(model, call)))));
  else for (const call of calls) answers.push(await answer(model, call));
} catch (error) {
  answers.push({ error: error.message, ours: error instanceof ModelError });
}
console.log(JSON.stringify(answers));
