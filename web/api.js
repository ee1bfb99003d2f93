// The client of the server's API: models, options, and streams of answers. It knows nothing about the page.

export class ServerError extends Error {
  constructor(message, status, param) {
    super(message);
    Object.assign(this, { status, param });
  }
}

// `server` is {base, key}: the address, "" for the page's own server, and the API key.
const headers = (server, more = {}) => ({ ...(server.key ? { Authorization: `Bearer ${server.key}` } : {}), ...more });
const url = (server, path) => (server.base || ".").replace(/\/+$/, "") + path;

/** The retry hint of a busy server, as the end of an error message. */
const retryHint = (response) => (response.headers.get("Retry-After") ? `; try again in ${response.headers.get("Retry-After")} s` : "");

/** Turns an error response into a ServerError. */
async function failure(response) {
  const text = await response.text().catch(() => "");
  try {
    const { error } = JSON.parse(text);
    return new ServerError(error.message + retryHint(response), response.status, error.param);
  } catch {
    return new ServerError(text.trim() || response.statusText || `status ${response.status}`, response.status);
  }
}

const GET_TIMEOUT_MS = 10000;

export async function get(server, path) {
  const response = await fetch(url(server, path), { headers: headers(server), signal: AbortSignal.timeout(GET_TIMEOUT_MS) });
  if (!response.ok) throw await failure(response);
  return response.json();
}

/** Returns the share of its model that a loading server has loaded, 0 to 1, or undefined if the server does not load. */
export async function loadedShare(server) {
  const response = await fetch(url(server, "/health"), { headers: headers(server), signal: AbortSignal.timeout(GET_TIMEOUT_MS) });
  const health = await response.json().catch(() => null);
  if (health?.status !== "loading" || typeof health.fraction !== "number") return undefined;
  return Math.min(Math.max(health.fraction, 0), 1);
}

/** Yields the data of each server-sent event in a body, as text. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split(/\r?\n\r?\n/);
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split(/\r?\n/).filter((l) => l.startsWith("data:")).map((l) => l.slice(5).replace(/^ /, ""));
      if (data.length) yield data.join("\n");
    }
  }
}

/** Posts a streaming request and yields its events as objects. Throws ServerError, or AbortError when signal fires. */
export async function* stream(server, path, body, signal) {
  const response = await fetch(url(server, path), {
    method: "POST",
    headers: headers(server, { "Content-Type": "application/json" }),
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw await failure(response);
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    const error = event.error ?? (event.event === "error" ? event : null);
    if (error) throw new ServerError(error.message, error.code, error.param);
    yield event;
  }
  throw new ServerError("the stream ended before the answer was complete");
}

/** Returns the same request as a curl command. */
export function curl(server, path, body) {
  const quoted = (s) => `'${s.replaceAll("'", `'\\''`)}'`;
  const at = new URL(url(server, path), location.href).href;
  const key = server.key ? ` -H "Authorization: Bearer $UNMASK_API_KEY"` : "";
  return `curl -N ${at}${key} -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`;
}
