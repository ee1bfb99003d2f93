"""Word pools for the task generators. Everything here is invented or common vocabulary; nothing is copied text."""

NAMES = """Ada Alma Amir Ana Anton Asha Ben Bea Boris Carla Cleo Dan Dara Diego Dora Edda Elif Emil Enzo Erik Eva Farah
Felix Fiona Gina Greta Hana Hugo Ida Igor Ines Iris Ivan Jana Jonas Jude Kai Karim Kira Lara Leo Lena Lila Louis Luca
Mara Max Mia Milo Mira Nadia Nico Nina Noah Nora Oda Olga Omar Oscar Pablo Petra Pia Quinn Rana Remi Rita Rosa Ruben
Sami Sara Selma Sofia Sven Tara Theo Tina Tom Uma Vera Viktor Wanda Willa Yara Yusuf Zoe""".split()

CITIES = """Amman Athens Bergen Berlin Bogota Boston Cairo Cork Dakar Delhi Denver Dublin Geneva Ghent Graz Hanoi Havana
Kyoto Lagos Leeds Lima Lisbon London Lyon Madrid Milan Minsk Mumbai Munich Nairobi Naples Oslo Paris Porto Prague Quito
Riga Rome Seoul Sofia Sydney Tallinn Tokyo Toronto Tunis Turin Vienna Warsaw York Zagreb Zurich""".split()

JOBS = """baker builder carpenter chemist cook dancer dentist doctor driver farmer gardener judge lawyer librarian
mechanic miner nurse painter pilot plumber poet potter sailor singer surgeon tailor teacher waiter weaver
writer""".split()

COLORS = "amber black blue brown copper gold gray green orange pink purple red silver violet white yellow".split()

ITEMS = """apples balls beads books boxes bricks buttons cakes candles cards chairs coins cookies cups eggs flowers forks
grapes hats keys lemons letters marbles mugs nails onions pears pencils pens plates plums ropes seeds shells shirts
socks stamps stickers stones tickets tiles toys""".split()

THINGS = """apple arrow basket beach bell bird boat book bottle bread bridge brush bucket button cabin cake camera candle
car carpet castle cat chair cheese clock cloud coat coin corn cow crown cup desk dog door dragon drum duck eagle engine
feather fence field fish flag flower forest fork fox frog garden gate ghost glass glove goat grape grass hammer hat hill
honey horse house island jacket jar jungle kettle key king kite knife ladder lake lamp leaf lemon letter lion lock
magnet map market melon mirror monkey moon mountain mouse music nail needle nest night ocean olive onion orange owl
paint paper path peach pearl pencil pepper piano pillow planet plate pocket pony potato queen rabbit radio rain ribbon
ring river road robot rocket roof rope rose sand school shadow sheep shell ship shoe silver sky snake snow soap spider
spoon square star stone storm street sugar summer sun table tea temple tent tiger tower toy train tree trumpet turtle
umbrella valley village violin wagon wall water whale wheel window winter wolf yard zebra""".split()

ADJECTIVES = """bright brave calm clean cold dark deep dry early empty fast fresh funny gentle happy heavy hot hungry
kind late lazy light little long loud lucky new old plain proud quick quiet rich round sad sharp shiny short shy slow
small soft strange strong sweet tall thin tiny warm wet wide wild wise young""".split()

VERBS = """builds buys carries catches cleans counts draws drops finds fixes follows hides holds keeps likes loses makes
moves needs opens paints pulls pushes reads sees sells sends shows steals takes throws touches turns wants washes
watches wears""".split()

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = """January February March April May June July August September October November December""".split()

OPPOSITES = """big small|hot cold|fast slow|old new|high low|light dark|open closed|full empty|early late|hard soft|wet
dry|long short|happy sad|loud quiet|rich poor|strong weak|clean dirty|thick thin|sweet sour|near far|up down|left
right|day night|good bad|first last|inside outside|always never|push pull|win lose|begin end|buy sell|rough smooth|deep
shallow|sharp blunt|brave afraid|true false|north south|east west|summer winter|above below"""
OPPOSITES = [tuple(pair.split()) for pair in OPPOSITES.split("|")]

# animal: (where it lives, how it feels at the start of a story)
ANIMALS = {
    "fox": ("in the forest", "curious"), "bear": ("in the mountains", "sleepy"), "owl": ("in an old tree", "wise"),
    "mouse": ("in a quiet barn", "shy"), "whale": ("in the deep sea", "lonely"), "frog": ("by a green pond", "cheerful"),
    "lion": ("on the wide plain", "proud"), "rabbit": ("in a sunny meadow", "nervous"), "turtle": ("on a warm beach", "patient"),
    "crow": ("in a tall tower", "clever"), "wolf": ("in the snowy hills", "hungry"), "duck": ("on a small lake", "playful"),
    "goat": ("on a rocky cliff", "stubborn"), "cat": ("by a busy harbor", "lazy"), "dog": ("on a little farm", "loyal"),
    "horse": ("in a windy valley", "brave"), "spider": ("in a dusty attic", "careful"), "bee": ("in a rose garden", "busy"),
    "tiger": ("in the jungle", "silent"), "penguin": ("on the ice", "funny"), "camel": ("in the desert", "calm"),
    "monkey": ("in a palm grove", "noisy"), "snail": ("under a garden wall", "slow"), "dragon": ("in a dark cave", "grumpy"),
}

# object: (what the animal does with it, what comes of it)
OBJECTS = {
    "lamp": ("lit it every evening", "nobody got lost in the dark again"),
    "key": ("tried it in every door", "a secret library was opened"),
    "map": ("followed it for seven days", "a hidden waterfall was found"),
    "bell": ("rang it at sunrise", "the whole village woke up smiling"),
    "book": ("read it aloud to the others", "everyone learned a new song"),
    "boat": ("sailed it across the water", "two old friends met again"),
    "drum": ("played it all night", "the rain finally came"),
    "kite": ("flew it above the clouds", "the wind became a friend"),
    "coin": ("threw it into a well", "a small wish came true"),
    "clock": ("wound it with great care", "nobody was ever late again"),
    "mirror": ("turned it to the sun", "the cold house grew warm"),
    "seed": ("planted it in the ground", "a giant tree grew overnight"),
    "rope": ("tied it across the river", "even the smallest could cross"),
    "hat": ("wore it to the market", "everybody wanted one too"),
    "shell": ("listened to it for hours", "the sea told an old tale"),
    "ladder": ("leaned it against the moon", "the stars came down to play"),
    "basket": ("filled it with berries", "there was enough for all"),
    "candle": ("placed it in the window", "a lost traveler came home"),
    "flute": ("learned to play it well", "the birds began to dance"),
    "blanket": ("shared it with a stranger", "the winter felt short"),
    "bridge": ("repaired it plank by plank", "two villages became one"),
    "letter": ("carried it over the hills", "an old quarrel was forgotten"),
    "crown": ("gave it back to the queen", "a great feast was held"),
    "telescope": ("pointed it at the sky", "a new star got a name"),
}

# ---------------------------------------------------------------------------------------------------------------------
# Further pools, for loose wording

MORE_NAMES = """Abel Adam Agnes Alan Albert Alex Alice Amina Amy Anders Andrea Andrew Angela Anna Anne Arthur Astrid August Bella
Bernd Bill Bob Brian Bruno Camille Carl Carlos Celia Charlie Chen Chloe Chris Clara Claire Daisy Daniel David Diana Dieter Dina
Donna Ed Edith Edgar Elena Eli Elisa Ella Ellen Ellie Emily Emma Eric Ernst Esther Ethan Fatima Fay Finn Frank Fred Frida Gabriel
George Georgia Gerda Grace Hans Harry Hassan Heidi Helen Henry Hilda Ian Ingrid Isaac Ismail Jack Jacob James Jane Jasmin Jean Jenny
Jim Joan Joe Johan John Jon Jose Joy Juan Julia Karl Kate Katya Ken Kim Kofi Kurt Laila Laura Lea Lee Leila Leon Li Lily Linda Lisa
Liv Lotte Lucy Luis Luke Lydia Manuel Marco Maria Marie Mark Martha Martin Mary Matt Maya Mei Mike Mohamed Moritz Naomi Nick Nils
Noor Olaf Olive Oliver Otto Paul Paula Peter Phil Rachel Ralf Ravi Raj Robert Robin Roland Rose Ruth Sally Sam Samuel Sarah Simon Sina
Stella Steve Sue Susan Tanja Ted Tess Thomas Tim Toby Toni Ulla Ulrich Vincent Walter Wei Will Xenia Yan Yasmin Yuki Yuri""".split()

MORE_CITIES = """Accra Ankara Austin Baku Bangkok Barcelona Basel Beijing Belfast Belgrade Bern Bilbao Bologna Bonn Bordeaux Bremen
Bristol Brussels Bucharest Budapest Calgary Cardiff Chicago Cologne Copenhagen Dallas Detroit Dresden Edinburgh Florence Frankfurt
Glasgow Hamburg Helsinki Houston Istanbul Jakarta Karachi Kiev Krakow Lahore Leipzig Lille Malmo Manila Marseille Melbourne Miami Montreal
Moscow Nice Osaka Ottawa Palermo Perth Phoenix Porto Reykjavik Rotterdam Santiago Seattle Seville Shanghai Singapore Stockholm Stuttgart
Taipei Tehran Utrecht Valencia Vancouver Venice Verona Vilnius Wellington Zaragoza""".split()

MORE_JOBS = """actor architect artist author barber butcher captain cashier clerk coach composer designer detective diver editor
engineer firefighter fisher guard guide hunter janitor jeweler journalist lecturer manager mayor model musician officer optician
photographer physicist plasterer president priest programmer reporter scientist shepherd soldier student trainer translator vet
welder""".split()

MORE_THINGS = """acorn airplane anchor ant apron axe baby bacon badger bag ball balloon banana band barn bat bath battery bean bear beard
beaver bed bee beer belt bench berry bike blanket board bone boot bottom bowl box boy brain branch brick bus butter cable cactus camel
canoe cap car cart cave chain chalk cherry chicken child chin church circle clay cliff clown coffee comb computer cookie corner couch
crab cream cricket crocodile cupboard curtain dad daisy deer dentist desert diamond dice dish doctor doll dolphin donkey dress drink
driver ear earth egg elbow elephant elk ember eye face family farm farmer film finger fire floor fly foam foot fruit fur game garlic
giraffe girl gorilla guitar gun hair ham hand harbor hare harp hawk head heart hedgehog heel helmet hen hippo hole hook hospital hotel
ice iron ivy jam jelly jewel juice kangaroo kid kitchen knee koala lawn leg lemur lens leopard library lid light lime line lip lizard
llama lobster lorry man mask mat meat milk mill mole money moose moth mother motor mouth mud mug mushroom neck net nose notebook nut
oak oar octopus oil otter oven ox oyster pan panda pants parrot party pasta pea pen penguin phone picture pie pig pigeon pin pipe pirate
pizza plane plant plate pool pot prince princess pumpkin puppy purse puzzle raccoon rat raven rice robin salad salmon salt sandwich scarf
scissors seal seat shark shelf shirt shop sink sister skirt sloth snail sock sofa soup spade squirrel stairs stick stool stove straw
suitcase swan sweater tail tank taxi teacher teapot telephone television thumb ticket tie toad toast toe tomato tooth towel tractor
truck tunnel turkey unicorn van vase vulture walrus wasp watch wave weasel whistle wing witch wizard woman wood worm zoo""".split()

ANIMALS_AGAIN = dict(zip(list(ANIMALS), list(OBJECTS)))          # what a story is about when the prompt names only one of them
OBJECTS_AGAIN = dict(zip(list(OBJECTS), list(ANIMALS)))

# Common words that the pools above lack, for training alone. Words that join the items of a list, or that instructions end with,
# are left out.
EVERYDAY = """about above after again air alone along also am another answer any are around ask at away back bad be because
been before began behind below best better between blow body bored both break breathes bring broken but by called calls came
can care change climbs close come comes cooks could cries cut dances days did different do does done down dreams drive each
earn easy eats else enough even ever every falls far feels few flies for found free friend friends front full gave get gets
give given go goes gone good great grow grows had half happen hard has have he heard hears hello help helps her here hers him
his home how hurt idea if inside is its jumps just keep kept knew know knows laugh laughs leaves left less let life likely
lives look looks love made make many may me mean meet meets might mine minute more most move much must my near never next nice
no none not nothing of off often on only open other our ours out over own pay people perhaps place plan plays put quite ran
read real rests right room runs said same sat saw say says seem seems she should side sings sit sits sleep sleeps smiles so
some soon speaks stand stands stay stays still stops such swims take talk talks tell than thank their them there they thing
things think those time tired today together told too took true try turn under until up upon us use very visit voice wait
waits wakes walk walks want was way we week well went were what when where while who why will wish with within without wonder
work works world would year years yes yet you your""".split()
