// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/bpe/bpe_tokenizer.hpp"

#include "src/train/tokenizer/bpe/utf8.hpp"
#include "src/train/tokenizer/bpe/word_cache.hpp"

#include <mutex>
#include <span>
#include <string_view>
#include <utility>

namespace vocabpipe {

namespace {

/// What SentencePiece and its followers write for a space.
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

bool has_split(const std::vector<TextStep>& steps) {
    for (const TextStep& step : steps) {
        if (std::holds_alternative<Split>(step)) return true;
    }
    return false;
}

TextPart normalized(const std::vector<TextStep>& steps, std::vector<StepMemory>& memory,
                    const TextPart& from) {
    TextPart result{.text = {}, .first = from.first, .begins_text = from.begins_text};
    run_steps(std::span(steps), std::span(memory), from,
              [&](const TextPart& part) { result = part; });
    return result;
}

}  // namespace

/// Memory of one thread that encodes.
struct BpeTokenizer::Memory {
    explicit Memory(const BpeDescription& description)
        : normalizer(make_memory(description.normalizer)),
          pre_tokenizer(make_memory(description.pre_tokenizer)) {}

    void keep_origins(bool keep) {
        valid.keep_origins(keep);
        for (StepMemory& step : normalizer) step.text.keep_origins(keep);
        for (StepMemory& step : pre_tokenizer) step.text.keep_origins(keep);
    }

    ChangedText valid;  ///< the text with U+FFFD for what is not UTF-8
    std::vector<StepMemory> normalizer, pre_tokenizer;
    WordCache cache;
    Merger merger;
    std::vector<Symbol> symbols;
};

/// Memories that no thread uses at the moment, so that const functions are safe from several
/// threads and each of them keeps what it has learned.
class BpeTokenizer::MemoryPool {
public:
    std::unique_ptr<Memory> take(const BpeDescription& description) {
        const std::lock_guard lock(mutex_);
        if (free_.empty()) return std::make_unique<Memory>(description);
        std::unique_ptr<Memory> memory = std::move(free_.back());
        free_.pop_back();
        return memory;
    }
    void give_back(std::unique_ptr<Memory> memory) {
        const std::lock_guard lock(mutex_);
        free_.push_back(std::move(memory));
    }

private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Memory>> free_;
};

/// One call of encode().
class BpeTokenizer::Encoding {
public:
    /// `begins`: null, if they are not asked for.
    Encoding(const BpeTokenizer& tokenizer, Memory& memory, std::vector<int32_t>& ids,
             std::vector<size_t>* begins)
        : tokenizer_(tokenizer),
          description_(tokenizer.description_),
          memory_(memory),
          ids_(ids),
          begins_(begins) {}

    void run(std::string_view text) {
        split_at_added(tokenizer_.added_, valid(text), [&](const TextPart& part) {
            const TextPart normal = normalized(description_.normalizer, memory_.normalizer, part);
            split_at_added(tokenizer_.normalized_added_, normal, [&](const TextPart& rest) {
                run_steps(std::span<const TextStep>(description_.pre_tokenizer),
                          std::span(memory_.pre_tokenizer), rest,
                          [&](const TextPart& word) { take_word(word); });
            });
        });
    }

private:
    TextPart valid(std::string_view text) {
        const TextPart whole{.text = text};
        size_t at = valid_utf8_bytes(text);
        if (at == text.size()) return whole;
        memory_.valid.start(whole);
        while (at < text.size()) {
            memory_.valid.replace(at, at + 1, kReplacementCharacter);
            ++at;
            at += valid_utf8_bytes(text.substr(at));
        }
        return memory_.valid.part();
    }

    template <typename Use>
    void split_at_added(const AddedTokens& tokens, const TextPart& part, const Use& use) {
        size_t from = 0;
        size_t done = 0;
        AddedTokens::Found found{};
        while (tokens.next(part.text, from, done, found)) {
            if (done < found.begin) use(part.sub(done, found.begin));
            give(found.id, part.origin(found.begin));
            done = found.end;
        }
        if (done < part.text.size()) use(part.sub(done, part.text.size()));
    }

    void take_word(const TextPart& word) {
        const std::string_view mark = tokenizer_.cut_before_;
        if (mark.empty()) return encode_word(word);
        size_t begin = 0;
        for (size_t at = word.text.find(mark, 1); at != std::string_view::npos;
             at = word.text.find(mark, at + mark.size())) {
            if (word.text.substr(0, at).ends_with(mark)) continue;
            encode_word(word.sub(begin, at));
            begin = at;
        }
        encode_word(word.sub(begin, word.text.size()));
    }

    void encode_word(const TextPart& word) {
        const WordCache::Entry* const known = memory_.cache.find(word.text);
        if (known != nullptr && begins_ == nullptr) {
            ids_.insert(ids_.end(), known->ids.begin(), known->ids.begin() + known->count);
            return;
        }
        size_t at = 0;
        const auto give_next = [&](int32_t id, size_t bytes) {
            // What is left out of a word may make its symbols end too early, never too late.
            give(id, word.origin(at));
            at += bytes;
        };
        if (known != nullptr) {
            for (size_t i = 0; i < known->count; ++i) give_next(known->ids[i], known->bytes[i]);
            return;
        }
        tokenizer_.words_.encode(word.text, memory_.merger, memory_.symbols);
        memory_.cache.keep(word.text, memory_.symbols);
        for (const Symbol& symbol : memory_.symbols) give_next(symbol.id, symbol.bytes);
    }

    void give(int32_t id, size_t begin) {
        ids_.push_back(id);
        if (begins_ != nullptr) begins_->push_back(begin);
    }

    const BpeTokenizer& tokenizer_;
    const BpeDescription& description_;
    Memory& memory_;
    std::vector<int32_t>& ids_;
    std::vector<size_t>* begins_;
};

BpeTokenizer::BpeTokenizer(BpeDescription description)
    : description_(std::move(description)),
      words_(std::move(description_.words)),
      special_(description_.texts.size()),
      pool_(std::make_unique<MemoryPool>()) {
    std::vector<std::pair<std::string, AddedToken>> plain, normal;
    std::vector<StepMemory> memory = make_memory(description_.normalizer);
    for (const AddedToken& token : description_.added) {
        if (token.special) special_.at(static_cast<size_t>(token.id)) = true;
        if (!token.normalized) {
            plain.emplace_back(token.content, token);
            continue;
        }
        const TextPart text = normalized(description_.normalizer, memory, {.text = token.content});
        normal.emplace_back(text.text, token);
    }
    added_ = AddedTokens(plain);
    normalized_added_ = AddedTokens(normal);
    if (!has_split(description_.pre_tokenizer) && words_.can_cut_before(kSpaceMark)) {
        cut_before_ = kSpaceMark;
    }
}

BpeTokenizer::~BpeTokenizer() = default;

void BpeTokenizer::run(std::string_view text, std::vector<int32_t>& ids,
                       std::vector<size_t>* begins) const {
    std::unique_ptr<Memory> memory = pool_->take(description_);
    memory->keep_origins(begins != nullptr);
    Encoding(*this, *memory, ids, begins).run(text);
    pool_->give_back(std::move(memory));
}

void BpeTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
    run(text, ids, nullptr);
}

void BpeTokenizer::encode_with_begins(std::string_view text, std::vector<int32_t>& ids,
                                      std::vector<size_t>& begins) const {
    run(text, ids, &begins);
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids) const {
    std::string joined;
    bool first = true;
    for (const int32_t id : ids) {
        if (id < 0 || id >= vocab_size() || is_special(id)) continue;
        joined += description_.decoder.of(description_.texts[static_cast<size_t>(id)], first);
        first = false;
    }
    return description_.decoder.whole(std::move(joined));
}

std::string BpeTokenizer::special_name(int32_t id) const {
    if (id < 0 || id >= vocab_size() || !is_special(id)) return {};
    return description_.texts[static_cast<size_t>(id)];
}

}  // namespace vocabpipe
