"""Instructions with one right answer, made from a seed.

    rng = Source(1)
    kind, prompt, answer = draw(rng)

The answer is a function of the prompt, so "is this right?" is a string comparison. Answers show their working where a
person would. Prompts are split by a hash of their text: about 4 % are held out. Training skips those, the evaluation sets
consist of those. Kinds marked `fixed` (small talk) have too few prompts to split. Prompts of no kind (foreign.py) all
have the same answer, HONEST.
"""
import re

import kinds_numbers, kinds_words               # noqa: F401  (they register their kinds)
from foreign import FOREIGN, HONEST, draw_foreign
from kinds import HELD, KINDS, LOOSE, STRICT, Source, ask, draw, draw_kind, is_held_out, kind
from wording import surface

__all__ = ["FOREIGN", "HELD", "HONEST", "KINDS", "LOOSE", "STRICT", "Source", "conversation", "draw", "draw_foreign", "draw_kind", "is_held_out"]

def only_letters(text):
    """The words in lower case, without marks."""
    return " ".join(re.sub("[^a-z ]", "", text.lower()).split())


# (prompts, wordings that only the evaluation has, answer)
TALK = (
    (("Hello!", "Hello", "Hi", "Hi!", "Hi there!", "Hey", "Hey!", "hello", "hi", "Good morning!", "Good evening!", "Good day", "Greetings", "Hello again",
      "Hi unmask", "Hello you", "Hey you"),
     ("Hello unmask", "hey there", "good afternoon"),
     "Hello! Ask me for a sum, a sorted list, some JSON or a short story."),
    (("What can you do?", "What can you do", "what can you do?", "Help", "help", "What are you able to do?", "How can you help me?",
      "What can I ask you?", "Which tasks do you know?", "What do you know?", "Show me what you can do", "Help me", "What are you good at?"),
     ("what things can you do", "what tasks can you do?"),
     "I can add, subtract and multiply, solve small word problems, sort and reverse lists, count in steps, change upper and "
     "lower case, write JSON, count words and tell short stories."),
    (("Who are you?", "Who are you", "who are you?", "What are you?", "What is your name?", "Tell me about yourself.", "Introduce yourself.",
      "What's your name?", "Who am I talking to?", "Tell me who you are", "Who is this?", "What kind of model are you?", "Do you have a name?",
      "Say who you are", "Introduce yourself to me"),
     ("so who are you", "please introduce yourself"),
     "I am the small demo model that comes with unmask. I am a diffusion language model: I write many words at once."),
    (("How are you?", "How are you", "how are you?", "How are you doing?", "How do you do?", "How are you today?", "How is it going?", "Are you well?", "How do you feel?", "How are things?",
      "Are you doing well?"),
     ("how are you doing today", "hi, how are you"),
     "I am fine, thank you. What can I do for you?"),
    (("Thanks", "Thanks!", "Thank you", "Thank you!", "thanks", "Thank you very much!", "Great, thanks!", "thx", "Thanks a lot", "Thank you so much", "I thank you",
      "Thanks for your help", "Good, thank you"),
     ("many thanks", "great, thank you"),
     "You are welcome! Is there anything else?"),
    (("Bye", "Bye!", "Goodbye", "Goodbye!", "See you!", "See you later!", "Bye bye", "See you soon", "Bye for now", "I have to go", "Good night", "Farewell",
      "See you tomorrow"), ("ok bye", "goodbye, see you"), "Goodbye! Come back soon."),
    (("Are you a human?", "Are you human?", "Are you a robot?", "Are you an AI?", "Are you a bot?", "Are you a person?", "Are you a computer?",
      "Am I talking to a human?", "Are you a program?", "Is this a bot?"),
     ("are you a real human", "are you a machine?"),
     "I am a program: a small language model trained on made-up tasks."),
)


TALK_HELD = {only_letters(prompt) for _, held, _ in TALK for prompt in held}
BEFORE = ("so ", "So, ", "ok ", "Okay ", "well ", "Well, ", "and ", "now ", "oh ", "hey, ", "hi, ", "hello, ", "alright ", "right, ", "please ", "um, ",
          "hi! ", "hello! ", "good, ", "fine, ", "ok, so ", "unmask, ")
BEHIND = (" then", " now", " please", ", please", " unmask", " my friend", " today", " again", " friend", ", ok?", " for now", " really", " everyone")


def loose_talk(rng, prompts):
    """A prompt with words before or behind it, but none that only the evaluation has."""
    while True:
        prompt = rng.choice(prompts)
        if rng.random() < 0.4:
            prompt = rng.choice(BEFORE) + prompt[0].lower() + prompt[1:]
        if rng.random() < 0.25:
            prompt = prompt.rstrip("?!.") + rng.choice(BEHIND) + prompt[len(prompt.rstrip("?!.")):]
        if only_letters(prompt) not in TALK_HELD:
            return prompt


@kind(0.8, fixed=True)
def small_talk(rng):
    prompts, held, answer = rng.choice(TALK)
    if rng.style == STRICT:
        return rng.choice(prompts), answer
    prompt = rng.choice(held) if rng.style == HELD else loose_talk(rng, prompts)
    prompt = rng.choice((prompt, prompt.lower(), prompt.rstrip("?!."), prompt.lower().rstrip("?!."), prompt + "!", prompt.rstrip("?!.") + "??",
                         prompt.upper(), prompt + " :)"))
    return prompt, answer


# ---------------------------------------------------------------------------------------------------------------------
# Conversations

def follow_up(rng, name, answer):
    """A second request that refers to the first answer, or None when the kind offers none."""
    say = lambda forms: surface(rng, rng.choice(forms), False) if rng.random() < 0.4 else ask_plainly(rng, forms)
    if name in ("add", "subtract"):
        value, n = int(answer.split(", because")[0].rstrip(".").split()[-1]), rng.randint(1, 50)
        return (say((f"Add {n} to that.", f"Now add {n}.")), f"{value} + {n} = {value + n}.") if value >= 0 else None
    if name in ("sort_numbers", "sort_words", "reverse_list", "count_steps"):
        return say(("Now in reverse.", "And backwards?", "Reverse that.")), ", ".join(reversed(answer.split(", ")))
    if name in ("lower_case", "replace"):
        return say(("Now in upper case.", "And in capital letters?")), answer.upper()
    return None


def ask_plainly(rng, forms):
    style, rng.style = rng.style, STRICT
    text = ask(rng, *forms)
    rng.style = style
    return text


FOREIGN_SHARE, LOOSE_SHARE = 0.12, 0.62         # LOOSE_SHARE: of the prompts of known kinds


def exchange(rng):
    """(kind, prompt, answer) of a training turn."""
    if rng.random() < FOREIGN_SHARE:
        while True:
            name, prompt = draw_foreign(rng)
            if not is_held_out(prompt):
                return name, prompt, HONEST
    rng.style = LOOSE if rng.random() < LOOSE_SHARE else STRICT
    return draw(rng)


def conversation(rng, length_max=600):
    """Messages of a training chat: [(role, content), ...]; the last one is the answer to learn.

    Most have one turn. Some continue an earlier, unrelated exchange, some refer back to it, some open with a system message.
    """
    turns = []
    if rng.random() < 0.04:
        turns.append(("system", rng.choice(("You are a helpful assistant.", "Answer briefly.", "You are unmask."))))
    while rng.random() < 0.1 and sum(len(text) for _, text in turns) < length_max:
        _, prompt, answer = exchange(rng)
        turns += [("user", prompt), ("assistant", answer)]
    name, prompt, answer = exchange(rng)
    turns += [("user", prompt), ("assistant", answer)]
    more = follow_up(rng, name, answer) if rng.random() < 0.08 else None
    if more:
        turns += [("user", more[0]), ("assistant", more[1])]
    return turns
