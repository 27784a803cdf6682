// SPDX-License-Identifier: Apache-2.0
// Reads the words of a command line: first all words, then the config file, then the values. So a
// misspelt flag is reported before a wrong value, and --help answers whatever else is wrong.
#include "src/tool/support/flag_parser.hpp"

#include "src/support/joined.hpp"
#include "src/support/nearest_name.hpp"
#include "src/tool/support/config_file.hpp"
#include "src/tool/support/help_text.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <utility>

namespace vocabpipe::tool {

namespace {

/// "--name" of "--name=value"; "" if it is no flag, such as a negative number.
std::string flag_in(const std::string& word) {
    const bool is_flag = word.size() > 1 && word.front() == '-' &&
                         (word[1] == '-' || std::isalpha(static_cast<unsigned char>(word[1])) != 0);
    return is_flag ? word.substr(0, word.find('=')) : "";
}

class CommandWords {
public:
    /// `answers`: --help and --version are flags.
    CommandWords(const Command& program, const std::vector<std::string>& words, bool answers)
        : program_(program), words_(words), at_(&program), path_(program.name), answers_(answers) {}

    CommandLine read() {
        bool flags_may_follow = true;
        for (next_ = 0; next_ < words_.size();) {
            const std::string& word = words_[next_++];
            if (flags_may_follow && word == "--") {
                flags_may_follow = false;
            } else if (flags_may_follow && !flag_in(word).empty()) {
                read_flag(word);
            } else if (flags_may_follow && enters(word)) {
                continue;
            } else {
                read_argument(word);
            }
        }
        if (!answer_.empty()) return {at_, {}, answer_};
        check_words();
        CommandLine line{at_, given(), ""};
        if (program_.config != nullptr) {
            read_config(line.given);
            line.given = given();
        }
        set_values();
        check_given();
        return line;
    }

private:
    template <typename Visit>
    void each_flag(Visit&& visit) const {
        for (const FlagGroup& group : at_->flags) {
            for (const Flag& flag : group.flags) visit(flag);
        }
    }

    const Flag* flag_named(const std::string& name) const {
        const Flag* found = nullptr;
        each_flag([&](const Flag& flag) {
            const std::vector<std::string> names = flag.spellings();
            if (std::ranges::find(names, name) != names.end()) found = &flag;
        });
        return found;
    }

    bool enters(const std::string& word) {
        const auto sub = std::ranges::find(at_->commands, word, &Command::name);
        if (sub == at_->commands.end()) return false;
        at_ = &*sub;
        path_ += " " + word;
        return true;
    }

    /// The positional argument that the next word belongs to; null: none is left.
    const Flag* next_argument() const {
        const Flag* found = nullptr;
        each_flag([&](const Flag& flag) {
            const bool takes = flag.is_list() || !words_of_.contains(&flag);
            if (found == nullptr && flag.is_positional() && takes) found = &flag;
        });
        return found;
    }

    /// Positional arguments that have no word yet.
    size_t missing_arguments() const {
        size_t count = 0;
        each_flag([&](const Flag& flag) {
            count += flag.is_positional() && !words_of_.contains(&flag) ? 1 : 0;
        });
        return count;
    }

    void read_argument(const std::string& word) {
        const Flag* const flag = next_argument();
        if (flag == nullptr) {
            extras_.push_back(word);
        } else {
            words_of_[flag].push_back(word);
        }
    }

    bool answers(const std::string& name) {
        if (!answers_) return false;
        if (name == "-h" || name == "--help") {
            answer_ = help_text(*at_, path_);
        } else if (name == "--version" && !at_->version.empty()) {
            answer_ = at_->version + "\n";
        } else {
            return false;
        }
        return true;
    }

    void read_flag(const std::string& word) {
        const std::string name = flag_in(word);
        const Flag* const flag = flag_named(name);
        if (flag == nullptr) {
            if (!answers(name)) unknown_.push_back(name);
            return;
        }
        std::vector<std::string> values;
        if (name.size() < word.size()) values.push_back(word.substr(name.size() + 1));
        if (flag->is_switch()) {
            read_switch(*flag, name, values);
            return;
        }
        const auto least = static_cast<size_t>(flag->words);
        while (values.size() < least && next_ < words_.size()) {
            const std::string& value = words_[next_];
            if (!flag_in(value).empty()) refuse_value(*flag, name, value);
            values.push_back(value);
            ++next_;
        }
        if (values.empty()) refuse(name + ": expected a value");  // of some, the row says how many
        // A list takes what follows, but leaves a word to each positional argument that lacks one.
        while (flag->is_list() && next_ < words_.size() && flag_in(words_[next_]).empty() &&
               words_.size() - next_ > missing_arguments()) {
            values.push_back(words_[next_++]);
        }
        std::vector<std::string>& all = words_of_[flag];
        if (!flag->repeats) all.clear();  // the last one counts: scripts append overriding flags
        all.insert(all.end(), values.begin(), values.end());
    }

    void read_switch(const Flag& flag, const std::string& name,
                     const std::vector<std::string>& values) {
        const std::string value = values.empty() ? "true" : values.front();
        if (value != "true" && value != "false") {
            throw UsageError(flag.name() + " " + value +
                             ": is a switch; omit the value, or use true or false");
        }
        // "--yes,!--no": the second means that the first is false.
        const bool inverts = ("," + flag.names + ",").find(",!" + name + ",") != std::string::npos;
        words_of_[&flag] = {(value == "true") != inverts ? "true" : "false"};
    }

    /// The value was an empty variable of a script: the next flag is none.
    [[noreturn]] static void refuse_value(const Flag& flag, const std::string& name,
                                          const std::string& next) {
        std::string remedy = flag.without_value;
        if (remedy.empty() && flag.words == 1) {
            remedy = "write " + flag.name() + "=" + next + " if that is the value";
        }
        throw UsageError(name + ": expected a value, got the flag " + next +
                         (remedy.empty() ? "" : "; " + remedy));
    }

    [[noreturn]] void refuse(const std::string& what) const {
        throw UsageError(what + (answers_ ? "; see " + path_ + " --help" : ""));
    }

    /// Unknown flags in their order, each with the nearest known one.
    std::string unknown_flags() const {
        std::vector<std::string> names;
        const auto add = [&](const Flag& flag) {
            for (std::string& name : flag.spellings()) {
                if (name.starts_with("--")) names.push_back(std::move(name));
            }
        };
        each_flag(add);
        if (answers_) std::ranges::for_each(standard_flags(*at_), add);
        const std::vector<std::string_view> known(names.begin(), names.end());
        std::string text;
        for (const std::string& flag : unknown_) {
            const std::string refused = at_->refusal ? at_->refusal(flag) : "";
            text += (text.empty() ? "" : "; ") + flag + ": " +
                    (refused.empty() ? "unknown flag" + did_you_mean(flag, known) : refused);
        }
        return text;
    }

    std::string wrong_subcommand() const {
        std::vector<std::string_view> known;
        for (const Command& sub : at_->commands) known.push_back(sub.name);
        const std::string all = joined(known);
        if (extras_.empty()) return path_ + ": requires a subcommand: " + all;
        return extras_.front() + ": unknown subcommand of " + path_ + "; use one of " + all +
               did_you_mean(extras_.front(), known);
    }

    void check_words() const {
        if (!unknown_.empty()) refuse(unknown_flags());
        if (!at_->commands.empty()) refuse(wrong_subcommand());
        if (!extras_.empty()) refuse(extras_.front() + ": unexpected argument");
    }

    GivenFlags given() const {
        GivenFlags result;
        for (const auto& [flag, words] : words_of_) result.emplace(flag->name(), words);
        return result;
    }

    /// Adds the flags of the config file that the words lack.
    void read_config(const GivenFlags& given) {
        const Flag* const flag = flag_named(ConfigFile::kFlag);
        const auto found = words_of_.find(flag);
        if (found == words_of_.end()) return;
        flag->set(found->second);
        for (TomlAssignment& one : program_.config->read(given)) {
            const Flag* const set = flag_named("--" + one.key);
            if (!given.contains(set->name())) words_of_[set] = std::move(one.values);
        }
    }

    /// In the order of the rows.
    void set_values() const {
        each_flag([&](const Flag& flag) {
            const auto found = words_of_.find(&flag);
            if (found == words_of_.end()) return;
            if (flag.is_switch()) {
                *std::get<bool*>(flag.value) = found->second.back() == "true";
            } else {
                flag.set(found->second);
            }
        });
    }

    void check_given() const {
        const auto excludes = [](const Flag& flag, const std::string& other) {
            return std::ranges::find(flag.excludes, other) != flag.excludes.end();
        };
        each_flag([&](const Flag& flag) {
            if (!words_of_.contains(&flag)) {
                if (flag.must_be_given()) refuse(flag.name() + " is required");
                return;
            }
            for (const auto& [other, words] : words_of_) {
                if (excludes(flag, other->name()) || excludes(*other, flag.name())) {
                    refuse(flag.name() + " excludes " + other->name());
                }
            }
        });
    }

    const Command& program_;
    const std::vector<std::string>& words_;
    const Command* at_;  ///< the deepest subcommand so far
    std::string path_;   ///< its name, with those above it
    bool answers_;
    size_t next_ = 0;
    std::map<const Flag*, std::vector<std::string>> words_of_;
    std::vector<std::string> unknown_;  ///< flags
    std::vector<std::string> extras_;   ///< words without a place
    std::string answer_;
};

}  // namespace

CommandLine read_command_line(const Command& program, const std::vector<std::string>& words) {
    return CommandWords(program, words, /*answers=*/true).read();
}

void read_flags(const std::vector<FlagGroup>& flags, const std::vector<std::string>& words) {
    const Command alone{.flags = flags};
    (void)CommandWords(alone, words, /*answers=*/false).read();
}

}  // namespace vocabpipe::tool
