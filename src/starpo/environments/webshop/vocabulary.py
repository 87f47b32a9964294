"""Words of generated catalogues: invented brands and thirty everyday kinds of products in five departments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Kind:
    """One kind of product and what its products vary in."""

    department: str
    query: str
    """Search term of the kind, equal for all its products."""
    noun: str
    """As titles name it."""
    branch: str
    """Parts of the breadcrumb below the department, joined by ``/``."""
    prices: tuple[float, float]
    """Lowest and highest price, dollars."""
    options: tuple[str, ...]
    """Names of its options, keys of ``OPTION_VALUES``."""
    materials: tuple[str, ...]
    """What it can be made of, or come as."""


#: Values of each option, as a record spells them (``/`` and capitals are normalised by the loader).
OPTION_VALUES: Final[dict[str, tuple[str, ...]]] = {
    "color": (
        "Black", "White", "Navy", "Burgundy", "Forest Green", "Light Blue", "Dark Grey", "Beige", "Rose Gold",
        "Teal", "Mustard", "Coral", "Black/White", "Charcoal", "Purple",
    ),
    "size": ("X-Small", "Small", "Medium", "Large", "X-Large", "XX-Large"),
    "shoe size": ("6", "7", "7.5", "8", "8.5", "9", "10", "11"),
    "capacity": ("8 Ounce", "12 Ounce", "16 Ounce", "24 Ounce", "32 Ounce"),
    "pack": ("1 Count", "2 Count", "4 Count", "6 Count", "12 Count"),
    "flavor": ("Vanilla", "Dark Chocolate", "Sea Salt", "Peanut Butter", "Lemon", "Original", "Cinnamon"),
    "scent": ("Unscented", "Lavender", "Citrus", "Rose", "Jasmine", "Mint"),
    "dimensions": ("24 x 36 inch", "36 x 48 inch", "52 x 84 inch", "60 x 60 inch", "72 x 84 inch"),
    "length": ("3 Feet", "6 Feet", "10 Feet", "15 Feet"),
    "style": ("Classic", "Modern", "Compact", "Deluxe"),
}  # fmt: skip

#: Properties by department: what attributes are drawn from.
ATTRIBUTES: Final[dict[str, tuple[str, ...]]] = {
    "beauty": (
        "cruelty free", "long lasting", "paraben free", "fragrance free", "dermatologist tested", "for dry skin",
        "for sensitive skin", "travel size", "natural ingredients", "alcohol free", "easy to use", "sulfate free",
    ),
    "electronics": (
        "noise cancelling", "fast charging", "water resistant", "hands free", "easy to install", "plug and play",
        "high resolution", "carrying case", "long battery life", "quick release", "stereo sound", "wall mounted",
    ),
    "fashion": (
        "machine wash", "slim fit", "long sleeve", "elastic waist", "moisture wicking", "quick drying",
        "button closure", "rubber sole", "arch support", "tumble dry", "drawstring closure", "relaxed fit",
    ),
    "garden": (
        "easy assembly", "heavy duty", "space saving", "non slip", "easy to clean", "weather resistant",
        "lumbar support", "height adjustable", "machine washable", "stain resistant", "eco friendly", "foldable",
    ),
    "grocery": (
        "gluten free", "low sugar", "non gmo", "ready to eat", "keto friendly", "dairy free", "high protein",
        "individually wrapped", "usda organic", "artificial colors free", "plant based", "resealable bag",
    ),
}  # fmt: skip

KINDS: Final = (
    Kind("beauty", "face creams", "Face Cream", "Skin Care/Face/Creams", (8, 60), ("scent", "pack"),
         ("Aloe", "Collagen", "Oat Milk", "Jojoba", "Rosehip")),
    Kind("beauty", "hair brushes", "Hair Brush", "Hair Care/Styling Tools/Brushes", (6, 35), ("color", "style"),
         ("Bamboo", "Boar Bristle", "Nylon", "Beechwood")),
    Kind("beauty", "lip balms", "Lip Balm", "Skin Care/Lips/Balms", (3, 18), ("scent", "pack"),
         ("Beeswax", "Shea Butter", "Coconut Oil", "Honey")),
    Kind("beauty", "shampoos", "Shampoo", "Hair Care/Shampoo and Conditioner", (7, 40), ("scent", "capacity"),
         ("Argan Oil", "Keratin", "Tea Tree", "Biotin")),
    Kind("beauty", "makeup bags", "Makeup Bag", "Tools and Accessories/Bags", (9, 45), ("color", "size"),
         ("Canvas", "Velvet", "Leather", "Mesh")),
    Kind("beauty", "nail polishes", "Nail Polish", "Makeup/Nails/Polish", (4, 20), ("color", "pack"),
         ("Gel", "Matte", "Glitter", "Pearl")),
    Kind("electronics", "headphones", "Headphones", "Audio/Headphones", (20, 320), ("color", "style"),
         ("Wireless", "Bluetooth", "Studio", "Wired")),
    Kind("electronics", "phone cases", "Phone Case", "Cell Phones/Accessories/Cases", (8, 40), ("color", "style"),
         ("Silicone", "Leather", "Carbon Fiber", "Glass")),
    Kind("electronics", "charging cables", "Charging Cable", "Accessories/Cables", (6, 30), ("length", "color"),
         ("Braided", "Nylon", "USB-C", "Magnetic")),
    Kind("electronics", "speakers", "Speaker", "Audio/Speakers", (25, 420), ("color", "size"),
         ("Bluetooth", "Walnut", "Aluminum", "Bookshelf")),
    Kind("electronics", "tripods", "Tripod", "Camera/Supports/Tripods", (18, 210), ("size", "color"),
         ("Carbon Fiber", "Aluminum", "Steel", "Bamboo")),
    Kind("electronics", "keyboards", "Keyboard", "Computers/Accessories/Keyboards", (22, 190), ("color", "style"),
         ("Mechanical", "Wireless", "Aluminum", "Bluetooth")),
    Kind("fashion", "mens shirts", "Shirt for Men", "Clothing/Men/Shirts", (14, 80), ("color", "size"),
         ("Linen", "Cotton", "Flannel", "Denim", "Silk")),
    Kind("fashion", "womens dresses", "Dress for Women", "Clothing/Women/Dresses", (20, 140), ("color", "size"),
         ("Chiffon", "Cotton", "Velvet", "Satin", "Lace")),
    Kind("fashion", "running shoes", "Running Shoes", "Shoes/Athletic/Running", (35, 180), ("shoe size", "color"),
         ("Mesh", "Leather", "Knit", "Suede")),
    Kind("fashion", "winter jackets", "Winter Jacket", "Clothing/Coats/Jackets", (40, 260), ("size", "color"),
         ("Down", "Fleece", "Wool", "Leather")),
    Kind("fashion", "socks", "Socks", "Clothing/Socks and Hosiery", (6, 30), ("size", "pack"),
         ("Merino Wool", "Cotton", "Bamboo", "Cashmere")),
    Kind("fashion", "yoga pants", "Yoga Pants", "Clothing/Women/Leggings", (15, 90), ("size", "color"),
         ("Spandex", "Nylon", "Cotton", "Modal")),
    Kind("garden", "office chairs", "Office Chair", "Furniture/Office/Chairs", (70, 480), ("color", "style"),
         ("Mesh", "Leather", "Velvet", "Steel")),
    Kind("garden", "area rugs", "Area Rug", "Decor/Rugs", (30, 300), ("dimensions", "color"),
         ("Wool", "Jute", "Cotton", "Chenille")),
    Kind("garden", "table lamps", "Table Lamp", "Lighting/Lamps", (18, 160), ("color", "size"),
         ("Ceramic", "Brass", "Glass", "Rattan")),
    Kind("garden", "blackout curtains", "Blackout Curtains", "Decor/Window Treatments/Curtains", (18, 120),
         ("dimensions", "color"), ("Velvet", "Linen", "Polyester", "Satin")),
    Kind("garden", "coffee mugs", "Coffee Mug", "Kitchen/Drinkware/Mugs", (7, 40), ("capacity", "color"),
         ("Ceramic", "Stoneware", "Glass", "Stainless Steel", "Porcelain")),
    Kind("garden", "bookshelves", "Bookshelf", "Furniture/Living Room/Shelves", (45, 390), ("size", "color"),
         ("Oak", "Pine", "Walnut", "Steel", "Bamboo")),
    Kind("grocery", "granola bars", "Granola Bars", "Snacks/Bars", (5, 40), ("flavor", "pack"),
         ("Oat", "Almond", "Quinoa", "Cashew")),
    Kind("grocery", "herbal teas", "Herbal Tea", "Beverages/Tea", (4, 35), ("pack", "style"),
         ("Chamomile", "Peppermint", "Ginger", "Hibiscus")),
    Kind("grocery", "roasted nuts", "Roasted Nuts", "Snacks/Nuts and Seeds", (7, 55), ("flavor", "pack"),
         ("Almond", "Cashew", "Pistachio", "Walnut")),
    Kind("grocery", "protein powders", "Protein Powder", "Sports Nutrition/Protein", (18, 90),
         ("flavor", "capacity"), ("Whey", "Pea", "Soy", "Hemp")),
    Kind("grocery", "hot sauces", "Hot Sauce", "Condiments/Sauces", (4, 28), ("pack", "capacity"),
         ("Habanero", "Chipotle", "Jalapeno", "Garlic")),
    Kind("grocery", "dark chocolates", "Chocolate Gift Box", "Candy/Chocolate", (9, 70), ("flavor", "pack"),
         ("Hazelnut", "Truffle", "Caramel", "Almond")),
)  # fmt: skip

BRANDS: Final = (
    "Altavern", "Brookmere", "Caldora", "Dunewell", "Elmhart", "Fernvale", "Glenova", "Harwick", "Ivorra",
    "Juniper Row", "Kestrelle", "Lumora", "Marlowe", "Northfen", "Oakridge", "Pellworth", "Quillan", "Rosmere",
    "Solvane", "Thornby", "Umbra Lane", "Vesper", "Willowick", "Yarrow",
)  # fmt: skip
LOOKS: Final = (
    "Soft", "Classic", "Modern", "Vintage", "Lightweight", "Premium", "Everyday", "Handmade", "Slim", "Rustic",
    "Minimalist", "Luxury",
)  # fmt: skip
PLACES: Final = ("Home", "Travel", "Office", "Gifts", "Outdoor Use", "Daily Use", "Kids", "Small Spaces")

#: The easy catalogue: a quality and a noun make a product. The qualities are adjectives, so that a title's only noun
#: is what the product is: another noun is another type of product and earns nothing.
EASY_QUALITIES: Final = ("ceramic", "plastic", "portable", "durable", "elegant", "simple", "cute", "unique")
EASY_NOUNS: Final = (
    "mug", "lamp", "chair", "bag", "clock", "tray", "box", "vase", "bench", "basket", "frame", "stool",
)  # fmt: skip
EASY_COLOURS: Final = ("red", "blue", "green", "white", "black", "pink")
