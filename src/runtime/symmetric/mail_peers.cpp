// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/symmetric/mail_peers.hpp"

#include <utility>

namespace vocabpipe::symmetric {

namespace {

class MailPeers final : public Peers, private MailLine {
public:
    MailPeers(const Sizes& sizes, int self, std::vector<int> ranks, TileMail& mail)
        : self_(self),
          ranks_(std::move(ranks)),
          mail_(mail),
          buffer_(static_cast<size_t>(sizes.bytes)),
          signals_(static_cast<size_t>(sizes.signals)),
          packed_(ranks_.size()),
          pushed_(ranks_.size()),
          taken_(ranks_.size()),
          line_(mail.open(ranks_, *this)) {}
    ~MailPeers() override { mail_.close(line_); }
    MailPeers(const MailPeers&) = delete;
    MailPeers& operator=(const MailPeers&) = delete;

    [[nodiscard]] std::span<std::byte> own() override { return buffer_; }

    void push(int member, const Rows<const std::byte>& from, const TilePlace& to,
              int signal) override {
        if (member == self_) {
            copy_rows(from, rows_at(buffer_.data(), to));
            raise(signal);
            return;
        }
        send(line_, member, Kind::push, signal, to, packed(from));
        ++pushed_[static_cast<size_t>(member)];
    }
    void start_pull(int member, const TilePlace& from, const Rows<std::byte>& to) override {
        if (member == self_) {
            copy_rows(rows_at<const std::byte>(buffer_.data(), from), to);
            return;
        }
        pull_to_ = to;
        pushed_before_pull_ = pushed_[static_cast<size_t>(member)];
        answered_ = false;
        send(line_, member, Kind::ask, SymmetricMemory::kNoSignal, from, {});
    }
    [[nodiscard]] bool pulled() override { return answered_; }
    [[nodiscard]] bool may_be_on_the_way(int member) const override {
        const auto at = static_cast<size_t>(member);
        return pushed_[at] > taken_[at];
    }
    [[nodiscard]] uint64_t raised(int signal) const override {
        return signals_[static_cast<size_t>(signal)];
    }

private:
    enum class Kind : uint8_t { push, ask, answer };

    void send(uint64_t line, int member, Kind kind, int signal, const TilePlace& place,
              std::vector<std::byte> bytes) {
        const Letter letter{.line = line,
                            .words = {static_cast<int64_t>(kind), signal, place.offset,
                                      place.row_bytes, place.rows, place.stride}};
        mail_.send(ranks_[static_cast<size_t>(member)], letter, std::move(bytes));
    }
    [[nodiscard]] static Kind kind_of(const Letter& letter) {
        return static_cast<Kind>(letter.words[0]);
    }
    [[nodiscard]] static TilePlace place_of(const Letter& letter) {
        return {letter.words[2], letter.words[3], letter.words[4], letter.words[5]};
    }
    [[nodiscard]] static std::vector<std::byte> packed(const Rows<const std::byte>& from) {
        std::vector<std::byte> bytes(static_cast<size_t>(from.bytes()));
        copy_rows(from, {.first = bytes.data(), .row_bytes = from.bytes()});
        return bytes;
    }

    [[nodiscard]] std::optional<std::span<std::byte>> place(int rank,
                                                            const Letter& letter) override {
        const auto bytes = static_cast<size_t>(letter.bytes);
        const TilePlace to = place_of(letter);
        if (kind_of(letter) == Kind::push && to.rows == 1) {
            return std::span(buffer_).subspan(static_cast<size_t>(to.offset), bytes);
        }
        if (kind_of(letter) == Kind::answer && pull_to_.rows == 1) {
            return std::span(pull_to_.first, bytes);
        }
        std::vector<std::byte>& rows = packed_[static_cast<size_t>(member_of(ranks_, rank))];
        rows.resize(bytes);
        return rows;
    }

    void arrived(int rank, const Letter& letter) override {
        const int member = member_of(ranks_, rank);
        const std::vector<std::byte>& rows = packed_[static_cast<size_t>(member)];
        const Rows<const std::byte> came{.first = rows.data(), .row_bytes = letter.bytes};
        const TilePlace where = place_of(letter);
        switch (kind_of(letter)) {
            case Kind::push:
                if (where.rows > 1) copy_rows(came, rows_at(buffer_.data(), where));
                raise(static_cast<int>(letter.words[1]));
                break;
            case Kind::ask:
                // A question that came early is answered before line_ is known.
                send(letter.line, member, Kind::answer, SymmetricMemory::kNoSignal, where,
                     packed(rows_at<const std::byte>(buffer_.data(), where)));
                break;
            case Kind::answer:
                if (pull_to_.rows > 1) copy_rows(came, pull_to_);
                taken_[static_cast<size_t>(member)] = pushed_before_pull_;
                answered_ = true;
                break;
        }
    }

    void raise(int signal) {
        if (signal != SymmetricMemory::kNoSignal) ++signals_[static_cast<size_t>(signal)];
    }

    int self_;
    std::vector<int> ranks_;
    TileMail& mail_;
    std::vector<std::byte> buffer_;
    std::vector<uint64_t> signals_;
    std::vector<std::vector<std::byte>> packed_;  ///< [member] tile of several rows
    std::vector<uint64_t> pushed_;                ///< [member] pushes
    std::vector<uint64_t> taken_;                 ///< [member] of them, as its answers show
    uint64_t pushed_before_pull_ = 0;
    Rows<std::byte> pull_to_;
    bool answered_ = true;
    uint64_t line_;  ///< last: what came early is taken when it opens
};

}  // namespace

std::unique_ptr<Peers> make_mail_peers(const Sizes& sizes, int self, std::vector<int> ranks,
                                       TileMail& mail) {
    return std::make_unique<MailPeers>(sizes, self, std::move(ranks), mail);
}

}  // namespace vocabpipe::symmetric
