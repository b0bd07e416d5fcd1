"""The sample shop's vocabulary: invented names, real places, and how each category sells through the year."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Category:
    """What a category holds and how it behaves."""

    name: str
    return_rate: float
    """Share of sold lines that come back (0-1)."""
    months: tuple[float, ...]
    """Demand from January to December, about 1 in the mean."""
    goods: tuple[tuple[str, int], ...]
    """What it is, and about what it costs."""


_SPRING = (0.6, 0.7, 1.2, 1.6, 1.7, 1.4, 1.1, 0.9, 0.9, 0.7, 0.6, 0.6)
_SUMMER = (0.6, 0.7, 0.9, 1.1, 1.3, 1.5, 1.6, 1.4, 0.9, 0.7, 0.6, 0.7)
_WINTER = (1.1, 1.0, 0.9, 0.8, 0.7, 0.6, 0.6, 0.7, 1.0, 1.2, 1.6, 1.8)
_GIFTS = (0.7, 0.7, 0.8, 0.9, 0.9, 0.8, 0.8, 0.8, 0.9, 1.0, 1.6, 2.1)
_SCHOOL = (1.1, 0.9, 0.9, 0.9, 0.9, 0.8, 0.8, 1.7, 1.4, 0.9, 0.8, 0.9)
_EVEN = (0.9, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.1, 1.1)

CATEGORIES = (
    Category(
        "Garden",
        0.03,
        _SPRING,
        (
            ("Watering Can", 29),
            ("Pruning Shears", 24),
            ("Raised Bed", 119),
            ("Seed Tray", 12),
            ("Rain Barrel", 89),
            ("Garden Hose", 44),
            ("Bird Feeder", 22),
            ("Plant Stand", 34),
            ("Compost Bin", 79),
            ("Hand Trowel", 11),
            ("Trellis", 38),
            ("Leaf Rake", 27),
        ),
    ),
    Category(
        "Kitchen",
        0.05,
        _EVEN,
        (
            ("Chef's Knife", 74),
            ("Cast Iron Pan", 59),
            ("Mixing Bowl Set", 39),
            ("Cutting Board", 32),
            ("Stock Pot", 68),
            ("Bread Tin", 18),
            ("Pepper Mill", 28),
            ("Kettle", 49),
            ("Salad Spinner", 26),
            ("Kitchen Scale", 34),
            ("Colander", 16),
            ("Baking Sheet", 19),
        ),
    ),
    Category(
        "Lighting",
        0.07,
        _WINTER,
        (
            ("Desk Lamp", 69),
            ("Floor Lamp", 139),
            ("Pendant Light", 99),
            ("String Lights", 24),
            ("Wall Sconce", 58),
            ("Lantern", 36),
            ("Night Light", 17),
            ("Reading Lamp", 54),
            ("Ceiling Lamp", 89),
            ("Dimmer Bulb Set", 29),
            ("Clip Lamp", 22),
            ("Paper Shade", 14),
        ),
    ),
    Category(
        "Textiles",
        0.11,
        _WINTER,
        (
            ("Wool Blanket", 89),
            ("Linen Sheets", 119),
            ("Bath Towel Set", 64),
            ("Cushion Cover", 17),
            ("Down Pillow", 79),
            ("Cotton Throw", 42),
            ("Table Runner", 26),
            ("Curtain Pair", 74),
            ("Quilt", 129),
            ("Kitchen Towels", 15),
            ("Door Mat", 24),
            ("Woven Rug", 179),
        ),
    ),
    Category(
        "Clothing",
        0.16,
        _WINTER,
        (
            ("Rain Jacket", 129),
            ("Merino Sweater", 94),
            ("Canvas Apron", 34),
            ("Wool Socks", 14),
            ("Fleece Vest", 72),
            ("Linen Shirt", 66),
            ("Knit Scarf", 38),
            ("Work Trousers", 84),
            ("Sun Hat", 26),
            ("Leather Belt", 44),
            ("Mittens", 29),
            ("Down Coat", 199),
        ),
    ),
    Category(
        "Stationery",
        0.02,
        _SCHOOL,
        (
            ("Notebook Set", 14),
            ("Fountain Pen", 49),
            ("Desk Organizer", 27),
            ("Wall Calendar", 19),
            ("Pencil Case", 12),
            ("Ink Bottle", 9),
            ("Letter Paper", 16),
            ("Sketch Pad", 11),
            ("Sticky Notes", 5),
            ("Ring Binder", 8),
            ("Brush Pens", 24),
            ("Document Tray", 22),
        ),
    ),
    Category(
        "Toys",
        0.06,
        _GIFTS,
        (
            ("Wooden Train", 44),
            ("Building Blocks", 38),
            ("Puzzle Box", 21),
            ("Plush Fox", 24),
            ("Marble Run", 54),
            ("Board Game", 36),
            ("Kite", 29),
            ("Play Kitchen", 98),
            ("Spinning Top", 9),
            ("Doll House", 109),
            ("Card Game", 12),
            ("Stacking Rings", 15),
        ),
    ),
    Category(
        "Outdoor",
        0.08,
        _SUMMER,
        (
            ("Day Pack", 84),
            ("Two-Person Tent", 289),
            ("Sleeping Bag", 149),
            ("Camp Stove", 69),
            ("Trekking Poles", 79),
            ("Hammock", 59),
            ("Water Bottle", 24),
            ("Head Torch", 39),
            ("Picnic Blanket", 34),
            ("Cool Box", 94),
            ("Camp Chair", 54),
            ("Dry Bag", 28),
        ),
    ),
    Category(
        "Audio",
        0.09,
        _GIFTS,
        (
            ("Bookshelf Speaker", 249),
            ("Headphones", 159),
            ("Record Player", 279),
            ("Kitchen Radio", 89),
            ("Sound Bar", 319),
            ("Earbuds", 99),
            ("Studio Microphone", 139),
            ("Headphone Stand", 29),
            ("Travel Speaker", 74),
            ("Clock Radio", 49),
            ("Speaker Cable", 19),
            ("Amplifier", 379),
        ),
    ),
    Category(
        "Coffee & Tea",
        0.03,
        _EVEN,
        (
            ("Espresso Beans", 16),
            ("Filter Roast", 14),
            ("Green Tea", 9),
            ("Herbal Tea", 8),
            ("Hand Grinder", 64),
            ("Pour-Over Set", 38),
            ("French Press", 34),
            ("Tea Pot", 29),
            ("Milk Frother", 36),
            ("Travel Mug", 22),
            ("Espresso Maker", 229),
            ("Cup Set", 42),
        ),
    ),
)

SERIES = (
    "Alder",
    "Birken",
    "Corvane",
    "Dellmark",
    "Elmora",
    "Fennick",
    "Grovely",
    "Halden",
    "Ivarra",
    "Juniperra",
    "Kestro",
    "Larkmere",
    "Mossby",
    "Nordal",
    "Oakhurst",
    "Pellan",
)

SUPPLIERS = (
    ("Arvenholz Works", "Germany"),
    ("Brisk Lantern Co", "Netherlands"),
    ("Cedarline Trading", "Canada"),
    ("Dovecote Mills", "United Kingdom"),
    ("Estuary Goods", "Portugal"),
    ("Fjordkraft Supply", "Norway"),
    ("Granite & Pine", "Sweden"),
    ("Halcyon Imports", "Italy"),
    ("Kirschbaum Textil", "Austria"),
    ("Lumen Verde", "Spain"),
    ("Moorland Toys", "Denmark"),
    ("Quartz Harbour", "Poland"),
)

STORES = (
    ("Loomfield Online", "Berlin", "Germany"),
    ("Loomfield Mitte", "Berlin", "Germany"),
    ("Loomfield Hafen", "Hamburg", "Germany"),
    ("Loomfield Isar", "Munich", "Germany"),
    ("Loomfield Ring", "Vienna", "Austria"),
    ("Loomfield Grachten", "Amsterdam", "Netherlands"),
    ("Loomfield Marais", "Paris", "France"),
    ("Loomfield Limmat", "Zurich", "Switzerland"),
)

CITIES = (
    ("Germany", ("Berlin", "Hamburg", "Munich", "Cologne", "Leipzig", "Bremen", "Dresden", "Freiburg")),
    ("Austria", ("Vienna", "Graz", "Linz")),
    ("Netherlands", ("Amsterdam", "Utrecht", "Groningen")),
    ("France", ("Paris", "Lyon", "Lille", "Nantes")),
    ("Switzerland", ("Zurich", "Basel", "Bern")),
    ("Denmark", ("Copenhagen", "Aarhus")),
)
COUNTRY_WEIGHTS = (46, 12, 14, 14, 9, 5)

SEGMENTS = ("consumer", "business", "school")
SEGMENT_WEIGHTS = (78, 16, 6)

FIRST_NAMES = (
    "Ada",
    "Anton",
    "Bela",
    "Britta",
    "Carla",
    "Cyril",
    "Dana",
    "Dario",
    "Edda",
    "Emil",
    "Fenja",
    "Florian",
    "Greta",
    "Gustav",
    "Hanna",
    "Hugo",
    "Ida",
    "Ilja",
    "Jana",
    "Jonas",
    "Karla",
    "Kaspar",
    "Lena",
    "Linus",
    "Mara",
    "Milo",
    "Nele",
    "Nils",
    "Olga",
    "Oskar",
    "Paula",
    "Pavel",
    "Rosa",
    "Ruben",
    "Selma",
    "Simon",
    "Tessa",
    "Theo",
    "Uma",
    "Valentin",
)
LAST_NAMES = (
    "Abendrot",
    "Ackerbach",
    "Birkhold",
    "Brunnmeer",
    "Corvelli",
    "Dornwald",
    "Eschental",
    "Falkrath",
    "Feldwegen",
    "Grauhain",
    "Halmstedt",
    "Holmquell",
    "Immerthal",
    "Jolander",
    "Kaltbrunn",
    "Kranwitz",
    "Lindhoven",
    "Lorvaux",
    "Marwede",
    "Mooskamp",
    "Nebelthau",
    "Nordquell",
    "Ostervall",
    "Perlhuber",
    "Quendel",
    "Rabenhof",
    "Rothmeer",
    "Sandvoort",
    "Silberau",
    "Steinlach",
    "Tannhoff",
    "Tillmond",
    "Ulmenrath",
    "Vandermoor",
    "Vielhaber",
    "Waldesch",
    "Weidenau",
    "Wintermoor",
    "Zanderhof",
    "Zirbental",
)


@dataclass(frozen=True, slots=True)
class Campaign:
    """A promotion that comes back every year."""

    name: str
    starts: tuple[int, int]
    """Month and day."""
    days: int
    discount_rate: float
    """0-1, taken off each line of an order that uses it."""
    boost: float
    """Orders a day, as a multiple of a day without promotion."""


CAMPAIGNS = (
    Campaign("Winter Clearance", (1, 8), 14, 0.25, 1.5),
    Campaign("Spring Planting Days", (3, 28), 10, 0.10, 1.35),
    Campaign("Midsummer Sale", (6, 18), 12, 0.15, 1.4),
    Campaign("Back to Desk", (8, 20), 12, 0.10, 1.25),
    Campaign("November Week", (11, 20), 8, 0.30, 2.4),
    Campaign("Advent Calendar", (12, 1), 20, 0.10, 1.5),
)

PAYMENT_METHODS = ("card", "invoice", "wallet", "gift_card")
PAYMENT_WEIGHTS = (54, 20, 21, 5)

RETURN_REASONS = ("changed mind", "damaged", "not as described", "wrong size", "arrived late")
RETURN_WEIGHTS = (38, 20, 20, 15, 7)
