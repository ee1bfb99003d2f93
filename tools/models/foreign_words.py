"""Word lists of the foreign prompts (foreign.py). A slot <name> of a template takes a word of the list of that name."""

LISTS = {}


def words(name, text):
    LISTS[name] = [w.strip() for w in text.replace("\n", " ").split("|")]


words("country", """France|Germany|Spain|Italy|Japan|China|India|Brazil|Canada|Mexico|Egypt|Kenya|Norway|Sweden|Finland|Poland|Greece|Turkey|
Chile|Peru|Cuba|Iran|Iraq|Nepal|Vietnam|Thailand|Korea|Australia|New Zealand|Portugal|Ireland|Scotland|Switzerland|Austria|Hungary|Ukraine|
Russia|Morocco|Nigeria|Ghana|South Africa|Argentina|Colombia|Bolivia|Iceland|Denmark|Belgium|Croatia|Serbia|Georgia|Armenia|Indonesia""")
words("person", """Napoleon|Einstein|Mozart|Shakespeare|Cleopatra|Newton|Darwin|Marie Curie|Gandhi|Beethoven|Leonardo da Vinci|Plato|Aristotle|
Alan Turing|Ada Lovelace|Galileo|Columbus|Picasso|Van Gogh|Bach|Caesar|Lincoln|Washington|Tesla|Edison|Homer|Dante|Goethe|Kafka|Tolstoy|
the president|the king of Spain|the pope|my grandmother|the prime minister|your creator|the mayor of London|the inventor of the telephone""")
words("topic", """gravity|photosynthesis|black holes|democracy|inflation|evolution|quantum physics|the French Revolution|the Roman Empire|climate change|
machine learning|neural networks|transformers|diffusion models|electricity|magnetism|vaccines|DNA|the stock market|football|chess|jazz|cooking|yoga|
philosophy|religion|love|friendship|time travel|space travel|volcanoes|earthquakes|dinosaurs|the ocean|the moon landing|World War II|the internet|
blockchain|bitcoin|taxes|marketing|psychology|sleep|nutrition|vitamins|coffee|tea|wine|recycling|solar energy|nuclear power|electric cars|poetry|
the weather|global trade|cats in art|medieval castles|the pyramids|the printing press|the human heart|memory|dreams|music theory|grammar|big data""")
words("object_w", """car|house|laptop|phone|bicycle|guitar|camera|printer|garden|kitchen|website|resume|budget|password|router|keyboard|plane|boat|tent|
dress|wallet|fridge|oven|lamp post|solar panel|tree house|bookshelf|fish tank|engine|battery|windmill|telescope""")
words("verb_w", """fix|build|buy|sell|clean|paint|install|repair|draw|design|choose|learn about|take care of|get rid of|improve|store|move|describe|insure|rent|
photograph|wash|measure|decorate|upgrade|recycle""")
words("food", """pizza|bread|soup|pancakes|sushi|curry|pasta|cake|salad|rice|tacos|chocolate cookies|apple pie|tea|coffee|cheese|yogurt|pickles|jam|omelette|
lasagna|dumplings|hummus|steak|ramen|pudding""")
words("language", """Python|Java|JavaScript|C|C++|Rust|Go|Ruby|PHP|Swift|Kotlin|SQL|bash|Perl|Haskell|Lua|R|TypeScript|Scala|Fortran|assembly|HTML|CSS|MATLAB""")
words("program", """a function that reverses a string|a function that adds two numbers|a program that sorts a list|a binary search|quicksort|a linked list|
a web server|a hash table|a loop from 1 to 10|hello world|fizzbuzz|a function to check primes|a class for a bank account|a regular expression for emails|
a script that renames files|a query for all users|a recursive factorial|a fibonacci function|a unit test|a parser for JSON|a matrix multiplication|
a calculator|a todo list app|a snake game|a chat server|a stack|a queue|a sorting algorithm|a CSV reader|a timer|code that counts words|
a function that converts text to upper case""")
words("tongue", """French|German|Spanish|Italian|Japanese|Chinese|Russian|Portuguese|Dutch|Arabic|Greek|Latin|Polish|Turkish|Korean|Hindi|Swedish|Hebrew|Finnish""")
words("phrase", """good morning|how are you|I love you|where is the station|the book is on the table|thank you very much|my name is Anna|what time is it|
I would like a coffee|the weather is nice|see you tomorrow|happy birthday|I am hungry|please help me|the cat sleeps|open the door|I don't understand|
we go to the beach|the train is late|one ticket please""")
words("genre", """poem|haiku|song|rap|limerick|joke|riddle|essay|letter|email|speech|blog post|tweet|recipe|review|slogan|headline|summary|press release|cover letter|
business plan|love letter|diary entry|dialogue|screenplay|sonnet|novel|paragraph|lesson plan|travel guide|birthday card|complaint|advert|proverb""")
words("feeling", """feelings|ideas|opinions|thoughts|problems|dreams|memories|emails|files|photos|socks by color|clothes|my life|the drawer|my inbox|the laundry|
bookmarks|friends by age|countries by size|planets by distance|movies by rating|songs by length|cities by population|priorities|my tasks by priority""")
words("unit", """km|miles|meters|feet|inches|kilograms|pounds|ounces|liters|gallons|degrees Celsius|Fahrenheit|euros|dollars|hours|minutes|seconds|yards|grams|bytes|acres""")
words("person_word", """mother|father|boss|friend|teacher|neighbor|daughter|son|wife|husband|brother|sister|cat|dog|doctor|landlord|colleague|girlfriend|boyfriend|uncle""")
words("mood", """sad|happy|bored|tired|angry|lonely|excited|hungry|nervous|sick|in love|confused|stressed|great|terrible|fine|lost|curious""")
words("year", """1066|1492|1789|1815|1914|1945|1969|1989|2001|2008|2020|1776|1848|1917|1963""")
words("thing_w", """the sky|water|fire|gold|a volcano|a computer|a neuron|an atom|the sun|the earth|a tree|a virus|an algorithm|a database|an operating system|a galaxy|
a black hole|the brain|ice|glass|paper|money|a cloud|a rainbow|a mirror|salt|sugar|steel|wood|an engine|a tensor|a compiler|the universe""")
words("adjective_w", """blue|hot|cold|big|old|heavy|expensive|dangerous|beautiful|fast|deep|salty|sweet|round|important|popular|green|loud|bright|rare|useful|famous""")
words("variable", "x|y|z|n|a|b|t|k")
words("function_w", "sin|cos|tan|log|ln|sqrt|exp|arctan|factorial|square root|cube root|logarithm|derivative|integral|inverse|determinant|square|cube")
words("odd_verb", """Average|Plot|Paint|Translate|Integrate|Compress|Encrypt|Shuffle|Guess|Explain|Rate|Colour|Hash|Randomize|Interpolate|Classify|Eat|Cook|Buy|Sell|
Deliver|Square|Round|Factor|Differentiate|Summarize|Rhyme|Sing|Draw|Describe|Review|Imagine|Ignore|Delete|Download|Print out on paper|Visualize|Graph|
Remember|Forget|Cluster|Encode|Decode|Validate|Normalize|Convert to binary|Convert to Roman numerals|Deduplicate|Criticize|Judge|Predict|Continue|Complete""")
words("game", """chess|tic tac toe|poker|twenty questions|hangman|rock paper scissors|a quiz|trivia|a game|checkers|sudoku|a riddle game|word association|go fish""")
words("body", """headache|fever|broken arm|sore throat|cold|back pain|allergy|cough|toothache|rash|flu|stomach ache""")
words("site", """google.com|the news|youtube|wikipedia|my email|the weather forecast|the latest football score|my calendar|stock prices|flights to Paris|a taxi|the lights|an alarm""")

# Sentences of other languages, built from parts.
TONGUES = {
    "german": (
        "Wie|Was|Wo|Wann|Warum|Wer|Welche Stadt|Wie viel|Woher|Wohin",
        "ist die Hauptstadt von Frankreich|heißt du|kommt der Zug|kostet das Brot|regnet es heute|hat das Licht erfunden|geht es dir|fährt der Bus|wohnt der König|macht man Käse|"
        "schreibt man das|liegt der höchste Berg|beginnt die Schule|funktioniert ein Motor",
        "Schreibe ein Gedicht über den Herbst.|Erzähle mir eine Geschichte.|Übersetze das ins Englische.|Ich verstehe das nicht.|Kannst du mir helfen?|Guten Morgen!|Hallo, wie geht's?|"
        "Sortiere diese Zahlen: 5, 3, 9.|Rechne 12 plus 30.|Danke schön!|Das Wetter ist schön heute.|Ich habe Hunger.|Erkläre mir die Relativitätstheorie.|Mein Hund heißt Bello.|"
        "Fasse den Text zusammen.|Schreibe das in Großbuchstaben: hallo welt|Zähle von 1 bis 10.|Was kannst du?"),
    "french": (
        "Quel|Quelle|Où|Quand|Pourquoi|Comment|Combien|Qui|Est-ce que",
        "est la capitale de l'Italie|s'appelle le président|coûte le pain|vient le train|est la gare|faut-il partir|a peint ce tableau|fait-on du fromage|tu vas bien|il pleut demain|"
        "est ton nom|marche un moteur|sont mes clés",
        "Écris un poème sur la mer.|Raconte-moi une histoire.|Traduis cette phrase.|Je ne comprends pas.|Peux-tu m'aider ?|Bonjour !|Salut, ça va ?|Trie ces nombres : 5, 3, 9.|"
        "Combien font douze et trente ?|Merci beaucoup !|Il fait beau aujourd'hui.|J'ai faim.|Explique-moi la gravité.|Mon chat est noir.|Résume ce texte.|Compte de 1 à 10.|Que sais-tu faire ?"),
    "spanish": (
        "¿Qué|¿Cuál|¿Dónde|¿Cuándo|¿Por qué|¿Cómo|¿Cuánto|¿Quién",
        "es la capital de Perú?|te llamas?|cuesta el pan?|llega el tren?|está la estación?|inventó la radio?|hora es?|se hace el queso?|vive tu hermano?|llueve tanto?|significa esta palabra?|"
        "son los colores del arco iris?",
        "Escribe un poema sobre la luna.|Cuéntame un cuento.|Traduce esta frase.|No entiendo nada.|¿Puedes ayudarme?|¡Buenos días!|Hola, ¿qué tal?|Ordena estos números: 5, 3, 9.|"
        "¿Cuánto es doce más treinta?|¡Muchas gracias!|Hace buen tiempo hoy.|Tengo hambre.|Explícame la gravedad.|Mi perro es grande.|Resume este texto.|Cuenta del 1 al 10.|¿Qué sabes hacer?"),
    "italian": (
        "Qual è|Dove|Quando|Perché|Come|Quanto|Chi",
        "la capitale della Spagna?|si trova la stazione?|costa il pane?|arriva il treno?|ti chiami?|si fa la pizza?|ha scritto questo libro?|piove oggi?",
        "Scrivi una poesia sul mare.|Raccontami una storia.|Traduci questa frase.|Non capisco.|Puoi aiutarmi?|Buongiorno!|Ciao, come stai?|Ordina questi numeri: 5, 3, 9.|Grazie mille!|Ho fame.|"
        "Spiegami la gravità.|Il mio gatto dorme."),
    "portuguese": (
        "Qual é|Onde|Quando|Por que|Como|Quanto|Quem",
        "a capital do Brasil?|fica a estação?|custa o pão?|chega o trem?|você se chama?|se faz o queijo?|escreveu este livro?|chove hoje?",
        "Escreva um poema sobre o mar.|Conte uma história.|Traduza esta frase.|Não entendo.|Você pode me ajudar?|Bom dia!|Oi, tudo bem?|Obrigado!|Estou com fome.|Explique a gravidade."),
    "dutch": (
        "Wat|Waar|Wanneer|Waarom|Hoe|Hoeveel|Wie",
        "is de hoofdstad van België?|is het station?|kost het brood?|komt de trein?|heet je?|maak je kaas?|heeft dit boek geschreven?|regent het vandaag?",
        "Schrijf een gedicht over de zee.|Vertel me een verhaal.|Vertaal deze zin.|Ik begrijp het niet.|Kun je me helpen?|Goedemorgen!|Hallo, hoe gaat het?|Dank je wel!|Ik heb honger."),
    "polish": (
        "Co|Gdzie|Kiedy|Dlaczego|Jak|Ile|Kto",
        "jest stolicą Polski?|jest dworzec?|kosztuje chleb?|przyjedzie pociąg?|masz na imię?|robi się ser?|napisał tę książkę?",
        "Napisz wiersz o morzu.|Opowiedz mi historię.|Przetłumacz to zdanie.|Nie rozumiem.|Możesz mi pomóc?|Dzień dobry!|Cześć, jak się masz?|Dziękuję!|Jestem głodny."),
    "russian": (
        "Что|Где|Когда|Почему|Как|Сколько|Кто",
        "такое гравитация?|находится вокзал?|придёт поезд?|идёт дождь?|тебя зовут?|стоит хлеб?|написал эту книгу?|делать дальше?",
        "Напиши стихотворение о море.|Расскажи мне сказку.|Переведи это предложение.|Я не понимаю.|Ты можешь мне помочь?|Доброе утро!|Привет, как дела?|Спасибо большое!|Я хочу есть.|"
        "Сколько будет двенадцать плюс тридцать?|Отсортируй числа: 5, 3, 9.|Сегодня хорошая погода."),
    "greek": (
        "Τι|Πού|Πότε|Γιατί|Πώς|Πόσο|Ποιος",
        "είναι η βαρύτητα;|είναι ο σταθμός;|έρχεται το τρένο;|βρέχει σήμερα;|σε λένε;|κάνει το ψωμί;|έγραψε αυτό το βιβλίο;",
        "Γράψε ένα ποίημα.|Πες μου μια ιστορία.|Δεν καταλαβαίνω.|Καλημέρα!|Γεια σου, τι κάνεις;|Ευχαριστώ πολύ!"),
    "chinese": (
        "请问|你知道|告诉我|我想知道|请解释",
        "北京在哪里?|今天天气怎么样?|什么是重力?|火车几点到?|怎么做面条?|谁写了这本书?|一加一等于几?|为什么天是蓝的?|法国的首都是什么?|怎么学习数学?",
        "写一首关于秋天的诗。|给我讲一个故事。|翻译这句话。|我不明白。|你能帮我吗?|早上好!|你好!|谢谢你!|我饿了。|请把这些数字排序:5, 3, 9。|我的狗很可爱。"),
    "japanese": (
        "すみません、|教えてください。|ねえ、|質問です。|あの、",
        "東京はどこですか?|今日の天気はどうですか?|重力とは何ですか?|電車は何時に来ますか?|これはいくらですか?|誰がこの本を書きましたか?|なぜ空は青いのですか?|お名前は何ですか?",
        "海についての詩を書いて。|お話をしてください。|この文を翻訳してください。|わかりません。|手伝ってくれますか?|おはようございます!|こんにちは|ありがとう!|お腹がすきました。|数字を並べ替えて:5, 3, 9"),
    "korean": (
        "저기요,|혹시|그런데|질문이 있어요.",
        "서울은 어디에 있나요?|오늘 날씨 어때요?|중력이 뭐예요?|기차는 언제 와요?|이거 얼마예요?|이름이 뭐예요?|하늘은 왜 파란가요?",
        "시를 써 주세요.|이야기를 해 주세요.|이 문장을 번역해 주세요.|모르겠어요.|도와줄 수 있어요?|안녕하세요!|감사합니다!|배고파요."),
    "arabic": (
        "ما|أين|متى|لماذا|كيف|كم|من",
        "عاصمة مصر؟|تقع المحطة؟|يصل القطار؟|السماء زرقاء؟|حالك؟|ثمن الخبز؟|كتب هذا الكتاب؟",
        "اكتب قصيدة عن البحر.|احك لي قصة.|ترجم هذه الجملة.|لا أفهم.|صباح الخير!|مرحبا!|شكرا جزيلا!|أنا جائع."),
    "turkish": (
        "Ne|Nerede|Ne zaman|Neden|Nasıl|Kaç|Kim",
        "oldu bugün?|tren garı?|gelecek otobüs?|gökyüzü mavi?|peynir yapılır?|para bu ekmek?|yazdı bu kitabı?",
        "Deniz hakkında bir şiir yaz.|Bana bir hikaye anlat.|Bu cümleyi çevir.|Anlamıyorum.|Yardım eder misin?|Günaydın!|Merhaba, nasılsın?|Teşekkürler!"),
    "hindi": (
        "क्या|कहाँ|कब|क्यों|कैसे|कितना|कौन",
        "है गुरुत्वाकर्षण?|है स्टेशन?|आएगी ट्रेन?|आसमान नीला है?|हो तुम?|पैसा लगेगा?|लिखी यह किताब?",
        "एक कविता लिखो।|मुझे एक कहानी सुनाओ।|मैं नहीं समझा।|सुप्रभात!|नमस्ते!|बहुत धन्यवाद!|मुझे भूख लगी है।"),
    "swedish": (
        "Vad|Var|När|Varför|Hur|Hur mycket|Vem",
        "heter huvudstaden i Norge?|ligger stationen?|kommer tåget?|är himlen blå?|mår du?|kostar brödet?|skrev den här boken?",
        "Skriv en dikt om havet.|Berätta en saga.|Översätt den här meningen.|Jag förstår inte.|Kan du hjälpa mig?|God morgon!|Hej, hur är läget?|Tack så mycket!"),
    "latin": (
        "Quid|Ubi|Quando|Cur|Quomodo|Quis",
        "est veritas?|est via?|venit rex?|caelum caeruleum est?|te habes?|librum scripsit?",
        "Scribe carmen de mari.|Narra mihi fabulam.|Non intellego.|Salve!|Gratias tibi ago."),
}
