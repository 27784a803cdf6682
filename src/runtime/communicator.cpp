// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/abandon_line.hpp"
#include "src/runtime/tile_link/mail.hpp"
#include "src/runtime/transport/transport.hpp"
#include "src/runtime/wait.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/world.hpp"

#include <array>
#include <cstring>
#include <exception>
#include <new>
#include <numeric>
#include <optional>

namespace vocabpipe {

namespace {

/// Cancels transfers on errors, so that no peer writes into memory that is about to be freed.
struct CancelUnlessDone {
    explicit CancelUnlessDone(Transport& t) : transport(t) {}
    ~CancelUnlessDone() {
        if (std::uncaught_exceptions() > before) transport.cancel();
    }
    CancelUnlessDone(const CancelUnlessDone&) = delete;
    CancelUnlessDone& operator=(const CancelUnlessDone&) = delete;
    Transport& transport;
    int before = std::uncaught_exceptions();
};

}  // namespace

Communicator::Communicator(std::unique_ptr<Transport> transport, WaitOptions wait)
    : transport_(std::move(transport)), wait_(std::move(wait)) {}
Communicator::~Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;

int Communicator::rank() const {
    return transport_->rank();
}
int Communicator::size() const {
    return transport_->size();
}

AbandonLine& Communicator::abandon_line() {
    if (!abandon_line_) abandon_line_ = std::make_unique<AbandonLine>(*transport_);
    return *abandon_line_;
}

TileMail& Communicator::tile_mail() {
    if (!tile_mail_) tile_mail_ = std::make_unique<TileMail>(*transport_);
    return *tile_mail_;
}

void Communicator::wait_for(std::span<const uint32_t> tickets) {
    const CancelUnlessDone cancel(*transport_);
    for (const Ticket ticket : tickets) {
        const IdleWait::Verdict verdict =
            poll_until(wait_, [&] { return transport_->test(ticket); });
        if (verdict == IdleWait::Verdict::go_on) continue;
        throw CommunicationError(
            "rank " + std::to_string(rank()) +
            (verdict == IdleWait::Verdict::interrupted
                 ? ": told to end while it waited for the other ranks "
                   "between steps"
                 : ": the other ranks did not answer for " +
                       std::to_string(static_cast<int>(wait_.timeout_seconds)) +
                       " s between steps"));
    }
}

std::vector<std::vector<std::byte>> Communicator::all_gather(std::span<const std::byte> mine) {
    std::vector<int> everyone(static_cast<size_t>(size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    const auto gather = [&](std::span<const std::byte> part) {
        std::vector<std::byte> all(part.size() * everyone.size());
        const Ticket ticket = transport_->start({.what = Do::all_gather,
                                                 .channel = Channel::control,
                                                 .ranks = everyone,
                                                 .send = part,
                                                 .receive = all});
        wait_for(std::span(&ticket, 1));
        return all;
    };
    // Sizes first: parts may differ in length.
    const uint64_t size = mine.size();
    const std::vector<std::byte> sizes = gather(std::as_bytes(std::span(&size, 1)));
    uint64_t longest = 0;
    std::vector<uint64_t> length(everyone.size());
    std::memcpy(length.data(), sizes.data(), sizes.size());
    for (const uint64_t one : length) longest = std::max(longest, one);
    std::vector<std::byte> padded(mine.begin(), mine.end());
    padded.resize(longest);
    const std::vector<std::byte> all = gather(padded);
    std::vector<std::vector<std::byte>> parts;
    for (size_t i = 0; i < everyone.size(); ++i) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i * longest);
        parts.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(length[i]));
    }
    return parts;
}

std::vector<std::vector<std::byte>> Communicator::all_to_all(
    std::span<const std::vector<std::byte>> to_each) {
    const auto ranks = static_cast<size_t>(size());
    const auto self = static_cast<size_t>(rank());
    if (to_each.size() != ranks) {
        throw UsageError("all_to_all: " + std::to_string(to_each.size()) + " parts for " +
                         std::to_string(ranks) + " ranks; give one for each");
    }
    std::vector<uint64_t> lengths;
    for (const std::vector<std::byte>& part : to_each) lengths.push_back(part.size());
    const auto lengths_of = all_gather(std::as_bytes(std::span(lengths)));
    std::vector<std::vector<std::byte>> from_each(ranks);
    std::vector<std::array<int, 2>> pairs;  // source, destination; the transport points to them
    pairs.reserve(2 * ranks);
    std::vector<uint32_t> tickets;
    const CancelUnlessDone cancel(*transport_);
    // All ranks go through the others in the same ring order, receives first.
    for (size_t o = 1; o < ranks; ++o) {
        const size_t from = (self + ranks - o) % ranks;
        uint64_t length = 0;
        std::memcpy(&length, lengths_of[from].data() + self * sizeof length, sizeof length);
        from_each[from].resize(length);
        if (length == 0) continue;
        pairs.push_back({static_cast<int>(from), rank()});
        tickets.push_back(transport_->start({.what = Do::receive,
                                             .channel = Channel::control,
                                             .ranks = pairs.back(),
                                             .receive = from_each[from]}));
    }
    for (size_t o = 1; o < ranks; ++o) {
        const size_t to = (self + o) % ranks;
        if (to_each[to].empty()) continue;
        pairs.push_back({rank(), static_cast<int>(to)});
        tickets.push_back(transport_->start({.what = Do::send,
                                             .channel = Channel::control,
                                             .ranks = pairs.back(),
                                             .send = to_each[to]}));
    }
    from_each[self] = to_each[self];
    wait_for(tickets);
    return from_each;
}

void Communicator::barrier() {
    (void)all_gather({});
}

void Communicator::agree(const std::function<void()>& work) {
    std::optional<Error> mine;
    try {
        work();
    } catch (const CommunicationError&) {
        throw;  // the peers cannot be asked any more
    } catch (const Error& error) {
        mine = error;
    } catch (const std::bad_alloc&) {
        mine = OutOfMemoryError("rank " + std::to_string(rank()) +
                                ": out of memory; use a smaller model or microbatch, or fewer "
                                "ranks per host");
    } catch (const std::exception& error) {
        mine = Error(ExitCode::failed, error.what());
    }
    std::vector<std::byte> report;
    if (mine) {
        const std::string text = mine->what();
        report.push_back(static_cast<std::byte>(mine->exit_code()));
        for (const char c : text) report.push_back(static_cast<std::byte>(c));
    }
    for (const std::vector<std::byte>& other : all_gather(report)) {
        if (other.empty()) continue;
        std::string text(other.size() - 1, ' ');
        std::memcpy(text.data(), other.data() + 1, text.size());
        throw AgreedError(static_cast<ExitCode>(other.front()), text);
    }
}

}  // namespace vocabpipe
