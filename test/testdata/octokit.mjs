// Many clients of GitHub's API at once, as their own library makes them: only base URL and key are ours. Prints what each was answered.
import { Octokit } from "@octokit/rest";

const clients = Number(process.env.CLIENTS);
const answers = await Promise.all(
  Array.from({ length: clients }, async (_, n) => {
    const octokit = new Octokit({ auth: process.env.KEY, baseUrl: process.env.BASE_URL, userAgent: "their-client/1" });
    const issue = await octokit.rest.issues.create({ owner: "acme", repo: "anvil", title: `from ${n}`, labels: ["a b"] });
    const found = await octokit.rest.search.repos({ q: `client:${n} in:name`, per_page: 5 });
    let missing = 0;
    try {
      await octokit.rest.issues.get({ owner: "acme", repo: "anvil", issue_number: 404 });
    } catch (error) {
      missing = error.status;
    }
    return { n, status: issue.status, title: issue.data.title, query: found.data.query, missing };
  }),
);
console.log(JSON.stringify(answers));
