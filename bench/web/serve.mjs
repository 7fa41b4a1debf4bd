// A worker that answers requests: serve({kind: async (message) => answer}).
export function serve(handlers) {
  self.onmessage = async ({ data }) => {
    try {
      self.postMessage({ answer: (await handlers[data.kind](data)) ?? null });
    } catch (error) {
      self.postMessage({ error: `${error?.message ?? error}\n${error?.stack ?? ''}` });
    }
  };
}
