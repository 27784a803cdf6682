// SPDX-License-Identifier: Apache-2.0
#include "src/select/knn/ring.hpp"

#include <algorithm>
#include <vector>

namespace vocabpipe {

void shift_around_ring(Communicator& world, int distance, std::span<std::byte> block) {
    const int ranks = world.size();
    if (distance % ranks == 0) return;
    const auto to = static_cast<size_t>((world.rank() + distance) % ranks);
    const auto from = static_cast<size_t>((world.rank() + ranks - distance % ranks) % ranks);
    std::vector<std::vector<std::byte>> pieces(static_cast<size_t>(ranks));
    for (size_t begin = 0; begin < block.size(); begin += kRingPieceBytes) {
        const auto piece = block.subspan(begin, std::min(kRingPieceBytes, block.size() - begin));
        pieces[to].assign(piece.begin(), piece.end());
        std::ranges::copy(world.all_to_all(pieces)[from], piece.begin());
    }
}

}  // namespace vocabpipe
