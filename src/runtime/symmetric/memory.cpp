// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/symmetric/memory.hpp"

#include "src/runtime/tile_link/mail_wait.hpp"
#include "vocabpipe/error.hpp"

#include <string>
#include <utility>

namespace vocabpipe::symmetric {

namespace {

class Memory final : public SymmetricMemory {
public:
    Memory(Communicator& world, SymmetricMemoryOptions options, int self,
           std::unique_ptr<Peers> peers)
        : mail_(world.tile_mail()),
          wait_(world.wait_options()),
          options_(std::move(options)),
          self_(self),
          peers_(std::move(peers)),
          rank_waits_(options_.ranks.size()) {}

    [[nodiscard]] int rank() const override { return self_; }
    [[nodiscard]] int size() const override { return static_cast<int>(options_.ranks.size()); }
    [[nodiscard]] std::span<std::byte> bytes() override { return peers_->own(); }

    void push(int member, std::span<const std::byte> from, int64_t offset, int signal) override {
        const auto length = static_cast<int64_t>(from.size());
        const TilePlace to{.offset = offset, .row_bytes = length};
        check_use("push", member, signal, true);
        check_place("push", to);
        peers_->push(member, {.first = from.data(), .row_bytes = length}, to, signal);
    }
    void push(int member, const TilePlace& mine, const TilePlace& theirs, int signal) override {
        check_use("push", member, signal, true);
        check_places("push", mine, theirs);
        peers_->push(member, rows_at<const std::byte>(bytes().data(), mine), theirs, signal);
    }
    void pull(int member, int64_t offset, std::span<std::byte> to) override {
        const auto length = static_cast<int64_t>(to.size());
        const TilePlace from{.offset = offset, .row_bytes = length};
        check_use("pull", member, kNoSignal, true);
        check_place("pull", from);
        pull_rows(member, from, {.first = to.data(), .row_bytes = length});
    }
    void pull(int member, const TilePlace& theirs, const TilePlace& mine) override {
        check_use("pull", member, kNoSignal, true);
        check_places("pull", mine, theirs);
        pull_rows(member, theirs, rows_at(bytes().data(), mine));
    }
    void quiet() override {
        check_usable();
        for (int member = 0; member < size(); ++member) {
            // The answer comes after all that was sent before the question.
            if (peers_->may_be_on_the_way(member)) pull_rows(member, {}, {});
        }
    }

    void notify(int member, int signal) override {
        check_use("notify", member, signal, false);
        peers_->push(member, {}, {}, signal);
    }
    void notify_all(int signal) override {
        for (int i = 1; i <= size(); ++i) notify((self_ + i) % size(), signal);
    }
    [[nodiscard]] uint64_t raised(int signal) override {
        check_use("raised", self_, signal, false);
        return peers_->raised(signal);
    }
    [[nodiscard]] bool test(int signal, uint64_t at_least) override {
        check_use("test", self_, signal, false);
        if (peers_->raised(signal) < at_least) poll();
        return peers_->raised(signal) >= at_least;
    }
    void wait(int signal, uint64_t at_least, const Awaited& what) override {
        check_use("wait", self_, signal, false);
        wait_for(signal, at_least, [&] {
            const std::string which = "signal " + std::to_string(signal) + ", raised " +
                                      std::to_string(peers_->raised(signal)) + " of " +
                                      std::to_string(at_least) + " times";
            return text_of(what, what.tile < 0
                                     ? which
                                     : "tile " + std::to_string(what.tile) + " (" + which + ")");
        });
    }

    void rank_notify(int member) override {
        check_use("rank_notify", member, kNoSignal, true);
        peers_->push(member, {}, {}, options_.signals + self_);
    }
    void rank_wait(int member, const Awaited& what) override {
        check_use("rank_wait", member, kNoSignal, true);
        const uint64_t count = rank_waits_[static_cast<size_t>(member)] + 1;
        wait_for(options_.signals + member, count, [&] {
            return text_of({what.operation, what.tile, member},
                           "rank signal " + std::to_string(count));
        });
        rank_waits_[static_cast<size_t>(member)] = count;
    }
    void barrier() override {
        quiet();
        ++barriers_;
        const int first = options_.signals + size();
        for (int i = 1; i < size(); ++i) {
            peers_->push((self_ + i) % size(), {}, {}, first + self_);
        }
        for (int member = 0; member < size(); ++member) {
            if (member == self_) continue;
            wait_for(first + member, barriers_, [&] {
                return text_of({"barrier of symmetric memory", -1, member},
                               "barrier " + std::to_string(barriers_));
            });
        }
    }

    void poll() override { (void)mail_.advance(); }
    void close() override {
        barrier();
        wait_by_mail(
            mail_, wait_, options_.poll,
            [&] { return mail_.idle(options_.ranks) ? Found::all : Found::nothing; },
            [&] { return text_of({}, "its last messages to be taken"); });
        closed_ = true;
    }

private:
    void check_usable() const {
        if (closed_) throw UsageError("symmetric memory: used after close()");
        if (!broken_) return;
        throw CommunicationError("rank " + std::to_string(mail_.transport().rank()) +
                                 ": symmetric memory: an earlier wait has failed");
    }
    void check_use(const char* what, int member, int signal, bool may_be_none) const {
        check_usable();
        if (member < 0 || member >= size()) {
            throw UsageError(std::string(what) + ": member " + std::to_string(member) + " of " +
                             std::to_string(size()) + " does not exist");
        }
        if (may_be_none && signal == kNoSignal) return;
        if (signal < 0 || signal >= options_.signals) {
            throw UsageError(std::string(what) + ": signal " + std::to_string(signal) + " of " +
                             std::to_string(options_.signals) + " does not exist");
        }
    }
    void check_place(const char* what, const TilePlace& place) const {
        const bool overlaps = place.rows > 1 && place.stride < place.row_bytes;
        const int64_t end =
            place.offset + place.row_bytes + (place.rows > 1 ? (place.rows - 1) * place.stride : 0);
        if (place.offset >= 0 && place.row_bytes >= 0 && place.rows >= 1 && !overlaps &&
            end <= options_.bytes) {
            return;
        }
        throw UsageError(std::string(what) + ": " + std::to_string(place.rows) + " rows of " +
                         std::to_string(place.row_bytes) + " bytes from byte " +
                         std::to_string(place.offset) + ", " + std::to_string(place.stride) +
                         " bytes apart, are not in a buffer of " + std::to_string(options_.bytes));
    }
    void check_places(const char* what, const TilePlace& mine, const TilePlace& theirs) const {
        check_place(what, mine);
        check_place(what, theirs);
        if (mine.rows == theirs.rows && mine.row_bytes == theirs.row_bytes) return;
        throw UsageError(std::string(what) + ": a tile of " + std::to_string(mine.rows) + " x " +
                         std::to_string(mine.row_bytes) + " bytes here and " +
                         std::to_string(theirs.rows) + " x " + std::to_string(theirs.row_bytes) +
                         " bytes there");
    }

    void pull_rows(int member, const TilePlace& from, const Rows<std::byte>& to) {
        if (!peers_->pulled()) throw UsageError("pull: called by `poll` during another pull");
        peers_->start_pull(member, from, to);
        try {
            wait_until([&] { return peers_->pulled() ? Found::all : Found::nothing; },
                       [&] {
                           return text_of({"symmetric memory", -1, member},
                                          std::to_string(to.bytes()) + " bytes to pull");
                       });
        } catch (...) {  // nothing may be written there any more
            mail_.cancel();
            throw;
        }
    }
    template <typename Text>
    void wait_for(int signal, uint64_t at_least, Text&& text) {
        uint64_t seen = peers_->raised(signal);
        wait_until(
            [&] {
                const uint64_t now = peers_->raised(signal);
                if (now >= at_least) return Found::all;
                return std::exchange(seen, now) == now ? Found::nothing : Found::something;
            },
            text);
    }
    template <typename Look, typename Text>
    void wait_until(Look&& look, Text&& text) {
        try {
            wait_by_mail(mail_, wait_, options_.poll, look, text);
        } catch (...) {
            broken_ = true;
            throw;
        }
    }
    /// "rank 0: ring all-gather: waits for tile 3 (...) of member 1 (rank 1)".
    [[nodiscard]] std::string text_of(const Awaited& what, const std::string& which) const {
        std::string text = "rank " + std::to_string(mail_.transport().rank()) + ": " +
                           std::string(what.operation) + ": waits for " + which;
        if (what.member < 0 || what.member >= size()) return text;
        return text + " of member " + std::to_string(what.member) + " (rank " +
               std::to_string(options_.ranks[static_cast<size_t>(what.member)]) + ")";
    }

    TileMail& mail_;
    const WaitOptions& wait_;
    SymmetricMemoryOptions options_;
    int self_;
    std::unique_ptr<Peers> peers_;
    std::vector<uint64_t> rank_waits_;  ///< [member] rank signals waited for
    uint64_t barriers_ = 0;             ///< entered
    bool broken_ = false;
    bool closed_ = false;
};

}  // namespace

std::unique_ptr<SymmetricMemory> make_memory(Communicator& world, SymmetricMemoryOptions options,
                                             int self, std::unique_ptr<Peers> peers) {
    return std::make_unique<Memory>(world, std::move(options), self, std::move(peers));
}

}  // namespace vocabpipe::symmetric
