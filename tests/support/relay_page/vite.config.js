import { defineConfig } from "vite";

// While developing, `npm run dev` serves the page and hands /api to the Python app.
export default defineConfig({
  build: { outDir: "dist", emptyOutDir: true, chunkSizeWarningLimit: 2000 },
  server: { proxy: { "/api": "http://127.0.0.1:8000" } },
});
