// What surrounds a prompt: {name, kind, make}. kind: "chat" goes through the model's chat template, "raw" does not,
// "infill" has a text behind the gap. make(text) gives the prompt, or the messages of a conversation.

const user = (text) => [{ role: "user", content: text }];
const steps = "Reason step by step, and put your final answer within \\boxed{}.";

export const templates = [
  { name: "Chat", kind: "chat", make: user },
  { name: "Raw text", kind: "raw", make: (text) => text },
  { name: "Infill", kind: "infill", make: (text) => text },
  { name: "GSM8K", kind: "chat", make: (text) => user(`${text}\n${steps}`) },
  {
    name: "GSM8K, LLaDA2",
    kind: "chat",
    make: (text) => [{ role: "system", content: "detailed thinking off" }, ...user(`${text}\n${steps}`)],
  },
  {
    name: "MATH",
    kind: "chat",
    make: (text) => user(`Solve the problem. Simplify the answer as far as possible.\n\n${text}\n\n${steps}`),
  },
  {
    name: "MBPP",
    kind: "chat",
    make: (text) => user(`${text}\n\nAnswer with one Python function in a single \`\`\`python block, without tests.`),
  },
  {
    name: "HumanEval",
    kind: "chat",
    make: (text) => user(`Complete this Python function. Answer with the whole function in one code block.\n\n\`\`\`python\n${text}\n\`\`\``),
  },
  {
    name: "HumanEval, raw",
    kind: "raw",
    make: (text) => `${text.trimEnd()}\n`,
  },
];
