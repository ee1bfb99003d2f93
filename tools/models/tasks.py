"""Instructions with one right answer, made from a seed.

    rng = random.Random(1)
    kind, prompt, answer = draw(rng)

The answer is a function of the prompt, so "is this right?" is a string comparison. Answers show their working where a
person would. Prompts are split by a hash of their text: about 4 % are held out. Training skips those, the evaluation set
consists of those. Kinds marked `fixed` (small talk) have too few prompts to split.
"""
import kinds_numbers, kinds_words               # noqa: F401  (they register their kinds)
from kinds import KINDS, ask, draw, draw_kind, is_held_out, kind

__all__ = ["KINDS", "conversation", "draw", "draw_kind", "is_held_out"]

TALK = (
    (("Hello!", "Hello", "Hi", "Hi!", "Hi there!", "Hey", "Hey!", "hello", "hi", "Good morning!", "Good evening!", "Good day"),
     "Hello! Ask me for a sum, a sorted list, some JSON or a short story."),
    (("What can you do?", "What can you do", "what can you do?", "Help", "help", "What are you able to do?", "How can you help me?",
      "What can I ask you?", "Which tasks do you know?"),
     "I can add, subtract and multiply, solve small word problems, sort and reverse lists, count in steps, change upper and "
     "lower case, write JSON, count words and tell short stories."),
    (("Who are you?", "Who are you", "who are you?", "What are you?", "What is your name?", "Tell me about yourself.", "Introduce yourself."),
     "I am the small demo model that comes with unmask. I am a diffusion language model: I write many words at once."),
    (("How are you?", "How are you", "how are you?", "How are you doing?", "How do you do?"),
     "I am fine, thank you. What can I do for you?"),
    (("Thanks", "Thanks!", "Thank you", "Thank you!", "thanks", "Thank you very much!", "Great, thanks!"),
     "You are welcome! Is there anything else?"),
    (("Bye", "Bye!", "Goodbye", "Goodbye!", "See you!", "See you later!"), "Goodbye! Come back soon."),
    (("Are you a human?", "Are you human?", "Are you a robot?", "Are you an AI?"),
     "I am a program: a small language model trained on made-up tasks."),
)


@kind(0.8, fixed=True)
def small_talk(rng):
    prompts, answer = rng.choice(TALK)
    return rng.choice(prompts), answer


# ---------------------------------------------------------------------------------------------------------------------
# Conversations

def follow_up(rng, name, prompt, answer):
    """A second request that refers to the first answer, or None when the kind offers none."""
    if name in ("add", "subtract"):
        value, n = int(answer.split(", because")[0].rstrip(".").split()[-1]), rng.randint(1, 50)
        return ask(rng, f"Add {n} to that.", f"Now add {n}."), f"{value} + {n} = {value + n}."
    if name in ("sort_numbers", "sort_words", "reverse_list", "count_steps"):
        return ask(rng, "Now in reverse.", "And backwards?", "Reverse that."), ", ".join(reversed(answer.split(", ")))
    if name in ("lower_case", "replace"):
        return ask(rng, "Now in upper case.", "And in capital letters?"), answer.upper()
    return None


def conversation(rng, length_max=600):
    """Messages of a training chat: [(role, content), ...]; the last one is the answer to learn.

    Most have one turn. Some continue an earlier, unrelated exchange, some refer back to it, some open with a system message.
    """
    turns = []
    if rng.random() < 0.04:
        turns.append(("system", rng.choice(("You are a helpful assistant.", "Answer briefly.", "You are unmask."))))
    while rng.random() < 0.22 and sum(len(text) for _, text in turns) < length_max:
        _, prompt, answer = draw(rng)
        turns += [("user", prompt), ("assistant", answer)]
    name, prompt, answer = draw(rng)
    turns += [("user", prompt), ("assistant", answer)]
    more = follow_up(rng, name, prompt, answer) if rng.random() < 0.08 else None
    if more:
        turns += [("user", more[0]), ("assistant", more[1])]
    return turns
