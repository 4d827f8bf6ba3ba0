// The app forbids `eval` in the page, and zod, a part of the AI SDK, would try it. This must be imported first.
import { config } from "zod";

config({ jitless: true });
