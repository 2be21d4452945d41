// Answers the calls of a request in one instance of an exported model, in node and in browsers.

const ARRAYS = {
  float64: Float64Array, float32: Float32Array, float16: Uint16Array, int64: BigInt64Array, uint64: BigUint64Array,
  int32: Int32Array, uint32: Uint32Array, int16: Int16Array, uint16: Uint16Array, int8: Int8Array, uint8: Uint8Array,
  bool: Uint8Array,
};

function tensor({ dtype, shape, data }) {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  return { data: new ARRAYS[dtype](bytes.buffer), shape };
}

function text({ data }) {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  let found = "";
  for (let at = 0; at < bytes.length; at += 4096) found += String.fromCharCode(...bytes.subarray(at, at + 4096));
  return btoa(found);
}

const mapped = (values, change) => Object.fromEntries(Object.entries(values).map(([name, value]) => [name, change(value)]));

async function answer(model, call) {
  if (call.code) return { value: await new Function("model", `return (async () => ${call.code})()`)(model) };
  const made = await model.run(mapped(call.inputs, tensor));
  return { outputs: mapped(made, (value) => ({ shape: value.shape, data: text(value) })) };
}

export async function answersTo({ load, ModelError }, { options, calls, together }) {
  const failed = (error) => ({ error: error.message, ours: error instanceof ModelError });
  const made = (model, call) => answer(model, call).catch(failed);
  try {
    const model = await load(options);
    if (together) return await Promise.all(calls.map((call) => made(model, call)));
    const found = [];
    for (const call of calls) found.push(await made(model, call));
    return found;
  } catch (error) {
    return [failed(error)];
  }
}
