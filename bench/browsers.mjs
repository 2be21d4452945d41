// One engine or both in turn on the cases of a request, in node or in a page: see browsers.py.
const inNode = typeof process === "object";
const files = inNode ? await import("node:fs") : null;
const address = inNode ? (await import("node:url")).pathToFileURL : null;
const request = inNode ? JSON.parse(files.readFileSync(0, "utf8")) : await (await fetch("request")).json();
const { folder, onnx, modules, relaxed, cases, rounds, engines, threads } = request;
const ARRAYS = { float32: Float32Array, int64: BigInt64Array, int32: Int32Array, bool: Uint8Array };

function drawn({ dtype, shape, value: fixed }) {
  const length = shape.reduce((a, b) => a * b, 1);
  const value = (at) => fixed !== undefined ? BigInt(fixed) : (dtype === "float32" ? Math.sin(at) : dtype === "int64" ? BigInt(1 + ((at * 7919) % 997) * (shape.length > 0)) : 1);
  return { data: ARRAYS[dtype].from({ length }, (_, at) => value(at)), shape };
}

async function anydim() {
  const { load } = await import(inNode ? address(`${folder}/model.js`) : "/model/model.js");
  const model = await load({ relaxed, threads });
  if (model.threads !== threads) throw Error(model.threadsProblem);
  return (inputs) => model.run(inputs);
}

async function imported() {
  if (!inNode) {
    const ort = await import("/ort/ort.wasm.min.mjs");
    ort.env.wasm.wasmPaths = "/ort/";
    return ort;
  }
  const { createRequire } = await import("node:module");
  return (await import(address(createRequire(address(`${modules}/`)).resolve("onnxruntime-web")))).default;
}

async function onnxruntime() {
  const ort = await imported();
  ort.env.wasm.numThreads = threads;
  ort.env.logLevel = "error";
  const session = await ort.InferenceSession.create(inNode ? files.readFileSync(onnx) : "/onnx/" + onnx.split("/").at(-1), { logSeverityLevel: 3 });
  return (inputs) => session.run(Object.fromEntries(Object.entries(inputs).map(([name, { data, shape }]) => {
    const type = { Float32Array: "float32", BigInt64Array: "int64", Int32Array: "int32", Uint8Array: "bool" }[data[Symbol.toStringTag]];
    return [name, new ort.Tensor(type, data, shape)];
  })));
}

// in a page: of its main thread, by the server; with several threads the time that passes
const processor = async () => (threads > 1 ? performance.now() : inNode ? (process.cpuUsage().user + process.cpuUsage().system) / 1e3 : Number(await (await fetch("clock")).text()));
const LEAST = 40; // milliseconds of a measurement
const REST = 60; // before one: onnxruntime's workers spin for 15 after a call
const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
const begin = performance.now(), begun = await processor();
const ways = { anydim, onnxruntime };
const runs = [];
for (const name of engines) runs.push(await ways[name]());
if (threads > 1 && !inNode) console.log(await (await fetch("spread")).text());
const found = [];
for (const given of cases) {
  const inputs = Object.fromEntries(Object.entries(given).map(([name, spec]) => [name, drawn(spec)]));
  for (const run of runs) await run(inputs);
  if (!found.length) found.push({ start: performance.now() - begin, processor: (await processor()) - begun });
  const times = runs.map(() => []), calls = runs.map(() => 1);
  for (let round = -5; round < rounds; round++) { // engines compile hot code in the first rounds
    for (const [number, run] of runs.entries()) {
      if (threads > 1) await new Promise((later) => setTimeout(later, REST));
      const before = await processor();
      const asking = (await processor()) - before;
      for (let call = 0; call < calls[number]; call++) await run(inputs);
      const took = (await processor()) - before - 2 * asking;
      if (round >= 0) times[number].push(took / calls[number]);
      else calls[number] = Math.max(1, Math.min(50, Math.ceil((LEAST * calls[number]) / Math.max(took, 0.1))));
    }
  }
  const ratios = times[0].map((took, round) => took / times.at(-1)[round]);
  found.push({ times: times.map((each) => median([...each])), ratio: median(ratios) });
}
if (inNode) found[0].bytes = process.memoryUsage().rss;
if (inNode) console.log(JSON.stringify(found));
else await fetch("answers", { method: "POST", body: JSON.stringify(found) });
