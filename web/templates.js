// Prompt templates: {name, kind, make}. The kind "chat" uses the model's chat template, "raw" does not, "infill" has a text
// after the gap. make(text) returns the prompt, or the messages of a conversation.

const user = (text) => [{ role: "user", content: text }];
const steps = "Reason step by step, and put your final answer within \\boxed{}.";

const tasks = [
  { name: "GSM8K", make: (text) => `${text}\n${steps}` },
  { name: "MATH", make: (text) => `Solve the problem. Simplify the answer as far as possible.\n\n${text}\n\n${steps}` },
  { name: "MBPP", make: (text) => `${text}\n\nAnswer with one Python function in a single \`\`\`python block, without tests.` },
  {
    name: "HumanEval",
    make: (text) => `Complete this Python function. Answer with the whole function in one code block.\n\n\`\`\`python\n${text}\n\`\`\``,
  },
];

/** LLaDA2 takes the thinking mode from a system turn. The other families need no system turn. */
const llada2 = { role: "system", content: "detailed thinking off" };

export const templates = [
  { name: "Chat", kind: "chat", make: user },
  { name: "Raw text", kind: "raw", make: (text) => text },
  { name: "Infill", kind: "infill", make: (text) => text },
  ...tasks.map(({ name, make }) => ({ name, kind: "chat", make: (text) => user(make(text)) })),
  ...tasks.map(({ name, make }) => ({ name: `${name}, LLaDA2`, kind: "chat", make: (text) => [llada2, ...user(make(text))] })),
  { name: "HumanEval, raw", kind: "raw", make: (text) => `${text.trimEnd()}\n` },
];
