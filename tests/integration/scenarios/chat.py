"""Chats as tokens, rendered as a thinking model's template does, with the marks that the text side finds in them."""

from tests.integration.scenarios.conversation import asked, tokens

HEAD, END, SYSTEM, USER, ASSISTANT, TOOL = range(50, 56)
"""Control tokens; contents are below 50."""
VOCAB = 56
NUM_TURNS = 6
"""Earlier questions whose start is marked, as in `ninfer.text.chat_prompt`."""


class Chat:
    """Messages of one conversation; answers carry thinking that is rendered only after the last question."""

    def __init__(self, harness, seed, *, num_system=0):
        self.harness, self.seed = harness, seed
        self.messages = []
        if num_system:
            self.messages.append((SYSTEM, (), tokens(f"{seed} system", num_system)))

    def say(self, role, num_tokens):
        self.messages.append((role, (), tokens(f"{self.seed} {len(self.messages)}", num_tokens)))

    def hear(self, answer, *, num_thinking=0, keeps_thinking=True):
        """Append an answer as a client sends it back."""
        thinking = answer.tokens[:num_thinking] if keeps_thinking else ()
        self.messages.append((ASSISTANT, tuple(thinking), answer.tokens[num_thinking:]))

    def render(self):
        """Return tokens, marks, and the end of the last question."""
        questions = [i for i, (role, _, _) in enumerate(self.messages) if role == USER]
        last = questions[-1] if questions else -1
        out, marks, question_end = [], set(), 0
        for index, (role, thinking, content) in enumerate(self.messages):
            if index in questions[-NUM_TURNS:]:
                marks.add(len(out))
            out += [HEAD, role, *(thinking if index > last else ()), *content, END]
            if role == SYSTEM:
                marks.add(len(out))
            if index == last:
                question_end = len(out)
        marks |= {question_end, len(out)}
        return [*out, HEAD, ASSISTANT], sorted(marks - {0}), question_end

    def submit(self, max_tokens=12, **more):
        prompt, marks, _ = self.render()
        return self.harness.submit(prompt, max_tokens, markers=marks, **more)

    def ask(self, max_tokens=12, **more):
        prompt, marks, _ = self.render()
        return asked(self.harness, prompt, max_tokens, markers=marks, **more)
