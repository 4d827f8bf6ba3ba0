import { createRoot } from "react-dom/client";
import { Assistant } from "./assistant.jsx";
import "./style.css";

createRoot(document.getElementById("root")).render(<Assistant />);
