/** fake is a fetch that answers from a list, and keeps what it was asked. It fails the call if it is asked too often. */
export function fake(...answers: (Response | Error)[]): { fetch: typeof fetch; requests: Request[]; bodies: string[] } {
  const requests: Request[] = [];
  const bodies: string[] = [];
  return {
    requests,
    bodies,
    fetch: async (input, init) => {
      const request = new Request(input, init);
      requests.push(request);
      bodies.push(await request.text());
      const answer = answers.shift() ?? new Error("the test has no further answer");
      request.signal.throwIfAborted();
      if (answer instanceof Error) throw answer;
      return answer;
    },
  };
}

export function json(status: number, body: unknown, headers: Record<string, string> = {}): Response {
  return new Response(JSON.stringify(body), { status, headers: { "Content-Type": "application/json", ...headers } });
}
