// SPDX-License-Identifier: Apache-2.0
#include "src/step/same_on_every_rank.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <sstream>

namespace vocabpipe {

void check_same_on_every_rank(Communicator& communicator, const std::vector<std::string>& mine,
                              ExitCode code, const std::string& remedy) {
    std::string joined;
    for (const std::string& line : mine) joined += line + "\n";
    const auto all = communicator.all_gather(std::as_bytes(std::span(joined)));
    const auto lines = [](const std::vector<std::byte>& bytes) {
        std::istringstream in(
            std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
        std::vector<std::string> result;
        for (std::string line; std::getline(in, line);) result.push_back(line);
        return result;
    };
    const std::vector<std::string> first = lines(all.front());
    for (size_t rank = 1; rank < all.size(); ++rank) {
        if (all[rank] == all.front()) continue;
        const std::vector<std::string> other = lines(all[rank]);
        const std::string here = " on rank " + std::to_string(rank);
        const size_t common = std::min(first.size(), other.size());
        size_t i = 0;
        while (i < common && first[i] == other[i]) ++i;
        const std::string what = i < common         ? first[i] + " on rank 0 but " + other[i] + here
                                 : i < first.size() ? first[i] + " on rank 0, but not" + here
                                                    : other[i] + here + ", but not on rank 0";
        throw AgreedError(code, what + ": " + remedy);
    }
}

}  // namespace vocabpipe
