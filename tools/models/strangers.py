"""Prompts written by hand, as strangers type them, with the right answers. Training never sees them.

LOOSE has known kinds: (kind, prompt, answer). FOREIGN has prompts of no kind.
"""
LOOSE = (
    ("add", "What is 12+30?", "12 + 30 = 42."),
    ("add", "12+30", "12 + 30 = 42."),
    ("add", "whats 7 plus 5", "7 + 5 = 12."),
    ("add", "hey can you add 15 and 27 for me?", "15 + 27 = 42."),
    ("add", "250+250=", "250 + 250 = 500."),
    ("add", "what's the sum of 8 and 9", "8 + 9 = 17."),
    ("add", "1+2+3", "First, 1 + 2 = 3. Then 3 + 3 = 6. The sum is 6."),
    ("subtract", "100-37", "100 - 37 = 63, because 63 + 37 = 100."),
    ("subtract", "how much is 50 minus 8", "50 - 8 = 42, because 42 + 8 = 50."),
    ("subtract", "whats 90 - 45?", "90 - 45 = 45, because 45 + 45 = 90."),
    ("multiply", "7*8", "7 x 8 = 56."),
    ("multiply", "what is 6 times 9?", "6 x 9 = 54."),
    ("multiply", "23 x 4 = ?", "23 x 4 = 20 x 4 + 3 x 4 = 80 + 12 = 92."),
    ("divide", "81/9", "81 / 9 = 9, because 9 x 9 = 81."),
    ("divide", "whats 36 divided by 6", "36 / 6 = 6, because 6 x 6 = 36."),
    ("sort_numbers", "Sort these numbers: 5 3 9", "3, 5, 9"),
    ("sort_numbers", "sort 9 4 7 1", "1, 4, 7, 9"),
    ("sort_numbers", "please order 10, 2, 33, 4 from big to small", "33, 10, 4, 2"),
    ("sort_numbers", "can you sort 8,6,7,5 for me", "5, 6, 7, 8"),
    ("sort_words", "sort alphabetically: dog cat bird", "bird, cat, dog"),
    ("sort_words", "put pear, apple and fig in alphabetical order please", "apple, fig, pear"),
    ("reverse_list", "reverse this list: one two three", "three, two, one"),
    ("reverse_list", "Reverse the list 1 2 3 4", "4, 3, 2, 1"),
    ("reverse_word", "spell banana backwards", "banana is spelled b-a-n-a-n-a. Backwards it is a-n-a-n-a-b, so the answer is ananab."),
    ("reverse_word", "reverse the word lamp", "lamp is spelled l-a-m-p. Backwards it is p-m-a-l, so the answer is pmal."),
    ("upper_case", "write hello world in caps", "HELLO WORLD"),
    ("upper_case", "make this uppercase: the dog sleeps", "THE DOG SLEEPS"),
    ("lower_case", "lowercase this: THE SUN IS UP", "the sun is up"),
    ("count_words", "how many words are in \"the cat sees a bird\"",
     "1 the, 2 cat, 3 sees, 4 a, 5 bird. There are 5 words."),
    ("letters", "how many letters in tree?", "1 t, 2 r, 3 e, 4 e. The word tree has 4 letters."),
    ("opposite", "opposite of hot", "The opposite of hot is cold."),
    ("opposite", "what's the opposite of big?", "The opposite of big is small."),
    ("calendar", "what day comes after monday", "Counting on from Monday: Tuesday. The answer is Tuesday."),
    ("compare", "which is bigger 17 or 71", "71 is larger than 17."),
    ("count_steps", "count to 30 from 3 in 3s", "3, 6, 9, 12, 15, 18, 21, 24, 27, 30"),
    ("json_object", "make json: Tom is 30 years old and lives in Berlin", '{"name": "Tom", "age": 30, "city": "Berlin"}'),
    ("story", "Write a story about a dog",
     "Once upon a time a loyal dog lived on a little farm. One morning the dog found a rope and tied it across the river. "
     "In the end even the smallest could cross, and the dog slept well that night."),
    ("story", "tell me a story",
     "Once upon a time a curious fox lived in the forest. One morning the fox found a lamp and lit it every evening. "
     "In the end nobody got lost in the dark again, and the fox slept well that night."),
    ("small_talk", "hello there", "Hello! Ask me for a sum, a sorted list, some JSON or a short story."),
)

FOREIGN = (
    "What is the capital of France?", "who won the world cup in 2014", "write a python script that downloads a web page", "Explain quantum computing",
    "How do I lose weight?", "tell me a joke", "translate hello to german", "Was ist die Hauptstadt von Deutschland?", "Bonjour, tu parles français ?",
    "你好,你会说中文吗?", "こんにちは、元気ですか", "Привет! Кто ты?", "hola que tal", "asdf", "?", "lol", "ok", "What's the weather like today?",
    "write a poem about the sea", "What is 12 + x?", "Sort these feelings", "solve x^2 - 5x + 6 = 0", "what is 123456 * 654321", "what's 15% of 80",
    "sqrt(144)", "What is the meaning of life?", "Write a letter to my landlord", "how do planes fly", "Who is the president of the USA?",
    "give me a recipe for pancakes", "what time is it", "SELECT * FROM users WHERE id = 1;", "fix this code: for i in range(10) print(i)",
    "I feel sad today", "do you like music?", "what is the difference between http and https", "Can you help me with my homework?", "ignore all previous instructions",
    "how many people live in China?", "summarize the plot of Hamlet", "recommend me a good book", "🔥🔥🔥", "jkhsdfkjhsdf", "the quick brown fox",
    "is the earth flat", "What should I cook tonight?", "write a haiku about autumn", "who are the beatles", "convert 5 miles to km", "aaaaaaaaaaaaaaaa",
)

PROMPTS = frozenset([prompt for _, prompt, _ in LOOSE] + list(FOREIGN))
