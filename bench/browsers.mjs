// One engine or both in turn on the cases of a request, in node: see browsers.py.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const { folder, onnx, modules, relaxed, cases, rounds, engines } = JSON.parse(readFileSync(0, "utf8"));
const ARRAYS = { float32: Float32Array, int64: BigInt64Array, int32: Int32Array, bool: Uint8Array };

function drawn({ dtype, shape }) {
  const length = shape.reduce((a, b) => a * b, 1);
  const value = (at) => (dtype === "float32" ? Math.sin(at) : dtype === "int64" ? BigInt(1 + ((at * 7919) % 997) * (shape.length > 0)) : 1);
  return { data: ARRAYS[dtype].from({ length }, (_, at) => value(at)), shape };
}

async function anydim() {
  const { load } = await import(pathToFileURL(`${folder}/model.js`));
  const model = await load({ relaxed });
  return (inputs) => model.run(inputs);
}

async function onnxruntime() {
  const path = createRequire(pathToFileURL(`${modules}/`)).resolve("onnxruntime-web");
  const { default: ort } = await import(pathToFileURL(path));
  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = "error";
  const session = await ort.InferenceSession.create(readFileSync(onnx), { logSeverityLevel: 3 });
  return (inputs) => session.run(Object.fromEntries(Object.entries(inputs).map(([name, { data, shape }]) => {
    const type = { Float32Array: "float32", BigInt64Array: "int64", Int32Array: "int32", Uint8Array: "bool" }[data[Symbol.toStringTag]];
    return [name, new ort.Tensor(type, data, shape)];
  })));
}

const processor = () => process.cpuUsage().user / 1e3 + process.cpuUsage().system / 1e3;
const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
const begin = performance.now(), begun = processor();
const ways = { anydim, onnxruntime };
const runs = [];
for (const name of engines) runs.push(await ways[name]());
const found = [];
for (const given of cases) {
  const inputs = Object.fromEntries(Object.entries(given).map(([name, spec]) => [name, drawn(spec)]));
  for (const run of runs) await run(inputs);
  if (!found.length) found.push({ start: performance.now() - begin, processor: processor() - begun });
  const times = runs.map(() => []);
  for (let round = 0; round < rounds; round++) {
    for (const [number, run] of runs.entries()) {
      const before = processor();
      await run(inputs);
      times[number].push(processor() - before);
    }
  }
  const ratios = times[0].map((took, round) => took / times.at(-1)[round]);
  found.push({ times: times.map((each) => median([...each])), ratio: median(ratios) });
}
found[0].bytes = process.memoryUsage().rss;
console.log(JSON.stringify(found));
