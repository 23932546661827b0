import json, random
random.seed(5); out = []
while len(json.dumps(out)) < 131072: out += [{"id": random.randrange(10**6), "name": "item %x" % random.randrange(2**40), "price": random.random() * 100, "tags": ["new", "blue"], "stock": {"north": 3, "south": random.randrange(9)}} for _ in range(20)]
print(json.dumps(out))
