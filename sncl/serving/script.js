"use strict";
// Answers are shown as text, never as HTML.
async function send(form) {
  const path = form.dataset.path;
  const answer = document.getElementById(path + "-answer");
  const headers = {};
  const token = document.getElementById("token");
  if (token && token.value) headers.Authorization = "Bearer " + token.value;
  const request = { headers };
  if (form.elements.body) {
    request.method = "POST";
    request.body = form.elements.body.value;
    headers["Content-Type"] = "application/json";
  }
  try {
    const response = await fetch(path, request);
    answer.textContent = response.status + "\n" + await response.text();
    answer.className = response.ok ? "" : "error";
    if (path === "predict" && response.ok) offerLabels(JSON.parse(answer.textContent.split("\n").slice(1).join("\n")));
  } catch (error) {
    answer.textContent = String(error);
    answer.className = "error";
  }
}

function offerLabels(answer) {
  const learn = document.querySelector('form[data-path="learn"]').elements.body;
  learn.value = JSON.stringify({ ids: answer.ids, labels: answer.predictions });
}

for (const form of document.forms) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (form.dataset.path) send(form);
  });
}
