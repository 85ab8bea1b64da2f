#include "factory/NameQuotas.h"

#include <algorithm>

namespace workflow {

namespace {

bool begins_with(std::string_view name, std::string_view prefix) {
  return name.substr(0, prefix.size()) == prefix;
}

}  // namespace

bool NameQuotas::covers(Of of, std::string_view text, std::string_view name) {
  return of == Of::kName ? name == text : begins_with(name, text);
}

std::unique_ptr<NameQuotas> NameQuotas::with(Of of, std::string_view text, size_t max) const {
  auto set = std::make_unique<NameQuotas>(*this);
  auto quota = std::make_shared<Quota>(text, max);
  if (of == Of::kName) {
    const auto place = std::find_if(set->names_.begin(), set->names_.end(),
                                    [text](const auto& other) { return other->text > text; });
    set->names_.insert(place, std::move(quota));
  } else {
    const auto place =
        std::find_if(set->prefixes_.begin(), set->prefixes_.end(),
                     [text](const Prefix& other) { return other.quota->text > text; });
    set->prefixes_.insert(place, Prefix{std::move(quota), kNoWider});
    set->link_prefixes();
  }
  return set;
}

std::unique_ptr<NameQuotas> NameQuotas::without(Of of, std::string_view text) const {
  auto set = std::make_unique<NameQuotas>(*this);
  if (of == Of::kName) {
    std::erase_if(set->names_, [text](const auto& quota) { return quota->text == text; });
  } else {
    std::erase_if(set->prefixes_, [text](const Prefix& p) { return p.quota->text == text; });
    set->link_prefixes();
  }
  return set;
}

// The prefixes are sorted by text, so all that begin with a prefix follow it directly.
void NameQuotas::link_prefixes() {
  size_t wider = kNoWider;
  for (size_t i = 0; i < prefixes_.size(); i++) {
    while (wider != kNoWider &&
           !begins_with(prefixes_[i].quota->text, prefixes_[wider].quota->text)) {
      wider = prefixes_[wider].wider;
    }
    prefixes_[i].wider = wider;
    wider = i;
  }
}

NameQuotas::Quota* NameQuotas::find(Of of, std::string_view text) const {
  if (of == Of::kName) {
    const auto place =
        std::lower_bound(names_.begin(), names_.end(), text,
                         [](const auto& quota, std::string_view t) { return quota->text < t; });
    return place != names_.end() && (*place)->text == text ? place->get() : nullptr;
  }
  const auto place =
      std::lower_bound(prefixes_.begin(), prefixes_.end(), text,
                       [](const Prefix& p, std::string_view t) { return p.quota->text < t; });
  return place != prefixes_.end() && place->quota->text == text ? place->quota.get() : nullptr;
}

void NameQuotas::set_max(Of of, std::string_view text, size_t max) const {
  find(of, text)->max.store(max, std::memory_order_relaxed);
}

void NameQuotas::add(Of of, std::string_view text, size_t nodes) const {
  find(of, text)->used.fetch_add(nodes, std::memory_order_relaxed);
}

template <class Visit>
bool NameQuotas::visit(std::string_view name, Visit&& visit) const {
  if (Quota* const quota = find(Of::kName, name)) {
    if (!visit(*quota)) return false;
  }
  // In this order everything between a prefix of the name and the name itself begins with that
  // prefix. So the last entry that is not after the name is the longest prefix of the name, or its
  // chain of wider ones leads there.
  const auto behind =
      std::upper_bound(prefixes_.begin(), prefixes_.end(), name,
                       [](std::string_view n, const Prefix& p) { return n < p.quota->text; });
  for (size_t i = behind == prefixes_.begin() ? kNoWider
                                              : static_cast<size_t>(behind - prefixes_.begin()) - 1;
       i != kNoWider; i = prefixes_[i].wider) {
    if (begins_with(name, prefixes_[i].quota->text) && !visit(*prefixes_[i].quota)) return false;
  }
  return true;
}

bool NameQuotas::Quota::take(bool beyond) {
  size_t before = used.load(std::memory_order_relaxed);
  do {
    if (!beyond && before >= max.load(std::memory_order_relaxed)) return false;
  } while (!used.compare_exchange_weak(before, before + 1, std::memory_order_relaxed));
  return true;
}

bool NameQuotas::take(std::string_view name, bool beyond) const {
  const Quota* full = nullptr;
  const bool taken = visit(name, [beyond, &full](Quota& quota) {
    full = &quota;
    return quota.take(beyond);
  });
  if (!taken) {
    visit(name, [full](Quota& quota) {
      if (&quota == full) return false;
      quota.used.fetch_sub(1, std::memory_order_relaxed);
      return true;
    });
  }
  return taken;
}

void NameQuotas::give_back(std::string_view name) const {
  visit(name, [](Quota& quota) {
    quota.used.fetch_sub(1, std::memory_order_relaxed);
    return true;
  });
}

}  // namespace workflow
