// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"

#include <string>

namespace vocabpipe {

/// A world of the first ranks of another one, for what they do while the others wait. Its transfers
/// take their turn with those of the whole world: start none of either while one of the other is
/// open. Ranks share no memory in it, so no tile links can be opened.
class FirstRanks final : public Transport {
public:
    /// `world` must outlive it; this rank's number in it is below `ranks`.
    FirstRanks(Transport& world, int ranks) : world_(world), ranks_(ranks) {}

    [[nodiscard]] int rank() const override { return world_.rank(); }
    [[nodiscard]] int size() const override { return ranks_; }
    [[nodiscard]] Ticket start(const Transfer& transfer) override { return world_.start(transfer); }
    [[nodiscard]] bool test(Ticket ticket) override { return world_.test(ticket); }
    void check_health() override { world_.check_health(); }
    void cancel() noexcept override { world_.cancel(); }
    void abort(const std::string& reason) noexcept override { world_.abort(reason); }

private:
    Transport& world_;
    int ranks_;
};

}  // namespace vocabpipe
