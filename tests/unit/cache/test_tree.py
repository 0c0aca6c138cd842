"""Context tree against a plain set of token paths."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ninfer.cache.identity import decode_tokens, encode_tokens
from ninfer.cache.node import PageNode
from ninfer.cache.tree import ContextTree

PAGE = 64


@st.composite
def path_tokens(draw):
    """Paths over few different pages, so that they share, fork inside pages and end anywhere."""
    pages = draw(st.lists(st.integers(0, 2), max_size=3))
    path = [token for page in pages for token in [*range(60), page, page, 0, 1]]
    rest = draw(st.integers(0, PAGE - 1))
    last = [*range(60), draw(st.integers(0, 2)), 1, 0, 1]
    return tuple(path + last[:rest])


def shared(left, right):
    num = 0
    while num < min(len(left), len(right)) and left[num] == right[num]:
        num += 1
    return num


class TreeMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.tree = ContextTree(1)
        self.nodes = {}
        """(domain, tokens from the root) of each page -> node"""

    @rule(domain=st.sampled_from([b"", b"x"]), path=path_tokens())
    def insert(self, domain, path):
        for start in range(0, len(path), PAGE):
            at = path[: start + PAGE]
            parent = self.nodes.get((domain, path[:start])) if start else self.tree.root(domain)
            if (domain, at) not in self.nodes:
                piece = encode_tokens(at[start:])
                node = PageNode(parent, piece, num_tiers=1, now_s=0.0, use_index=0)
                self.tree.link(node)
                self.nodes[domain, at] = node

    @rule(data=st.data())
    def remove(self, data):
        if self.nodes:
            domain, path = data.draw(st.sampled_from(sorted(self.nodes)))
            below = {key for key in self.nodes if key[0] == domain and key[1][: len(path)] == path}
            if len(path) % PAGE:
                below = {(domain, path)}
            node = self.nodes[domain, path]
            assert set(self.tree.subtree(node)) == {self.nodes[key] for key in below}
            self.tree.unlink(node)
            for key in below:
                del self.nodes[key]

    @rule(domain=st.sampled_from([b"", b"x", b"never"]), path=path_tokens())
    def look_up(self, domain, path):
        found = self.tree.walk(domain, encode_tokens(path))
        expected = []
        for end in range(PAGE, len(path) + 1, PAGE):
            if (domain, path[:end]) not in self.nodes:
                break
            expected.append(self.nodes[domain, path[:end]])
        assert found == expected
        parent = found[-1] if found else self.tree.root(domain)
        start = len(found) * PAGE
        rest = path[start : start + PAGE]
        pieces = [
            key[1][start:]
            for key in self.nodes
            if key[0] == domain
            and key[1][:start] == path[:start]
            and start < len(key[1]) <= start + PAGE
        ]
        follower, num_shared = self.tree.longest_partial(parent, encode_tokens(rest))
        assert num_shared == max((shared(piece, rest) for piece in pieces), default=0)
        assert (follower is None) == (num_shared == 0)
        if follower is not None:
            assert shared(decode_tokens(follower.tokens), rest) == num_shared
        tails = [piece for piece in pieces if len(piece) < PAGE and piece == rest[: len(piece)]]
        within = self.tree.tails_within(parent, encode_tokens(rest))
        assert [tuple(decode_tokens(tail.tokens)) for tail in within] == sorted(
            tails, key=len, reverse=True
        )
        dominated = self.tree.dominated_tails(parent, encode_tokens(rest)) if rest else []
        assert {tuple(decode_tokens(tail.tokens)) for tail in dominated} == set(tails) - {rest}

    @invariant()
    def agrees(self):
        assert set(self.tree.nodes()) == set(self.nodes.values())
        for (domain, path), node in self.nodes.items():
            assert node.end_tokens == len(path)
            assert node.domain == domain


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
