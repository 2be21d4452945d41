// In node: a request in standard input, its answers in standard output.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { answersTo } from "./answers.mjs";

const request = JSON.parse(readFileSync(0, "utf8"));
const model = await import(pathToFileURL(`${request.folder}/model.js`));
console.log(JSON.stringify(await answersTo(model, request)));
