async ([app, name]) => {
  // Everything that a page may try without asking the browser first, and what it may not.
  const chat = `${app}/api/chat`, text = JSON.stringify({
    id: "chat", message: { id: "u9", role: "user", parts: [{ type: "text", text: "from elsewhere" }] } });
  const types = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json"];
  const read = [];
  const attempt = async (url, options) => {
    try {
      const response = await fetch(url, { credentials: "include", ...options });
      if (response.type !== "opaque") read.push([url, await response.text()]);
    } catch { /* the browser refuses it */ }
  };
  for (const mode of ["cors", "no-cors"]) {
    for (const type of types) await attempt(chat, { method: "POST", mode, body: text, headers: { "content-type": type } });
    await attempt(chat, { method: "POST", mode, body: new Blob([text]) });
    for (const url of [`${chat}/${name}`, `${chat}/${name}/stream`, `${app}/`]) await attempt(url, { mode });
    await attempt(`${chat}/${name}/stream`, { method: "DELETE", mode });
  }
  for (const type of types) navigator.sendBeacon(chat, new Blob([text], { type }));
  await new Promise((done) => {
    const request = new XMLHttpRequest();
    request.onloadend = done;
    request.open("POST", chat);
    request.withCredentials = true;
    request.setRequestHeader("content-type", "application/json");
    request.send(text);
  });
  for (const enctype of types.slice(0, 3)) {
    const form = Object.assign(document.createElement("form"), { action: chat, method: "post", enctype, target: "frame" });
    const field = Object.assign(document.createElement("input"), { name: text.slice(0, -1) + ',"x":"', value: '"}' });
    form.append(field);
    document.body.append(form);
    const frame = document.querySelector("iframe");
    await new Promise((done) => { frame.onload = done; form.submit(); });
  }
  const frame = document.querySelector("iframe");
  await new Promise((done) => { frame.onload = done; frame.src = `${app}/`; });
  try { read.push(["frame", frame.contentDocument.body.innerText]); } catch { /* the browser refuses it */ }
  return read.filter(([, shown]) => shown);
}
