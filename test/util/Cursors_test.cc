#include "util/Cursors.h"

#include <gtest/gtest.h>

namespace {

struct Node {
  Node* next = nullptr;
};

using Cursor = workflow::Cursors<Node>::Cursor;

}  // namespace

TEST(Cursors, StayOnNodesOfTheList) {
  Node last;
  Node middle{&last};
  Node first{&middle};
  workflow::Cursors<Node> cursors;
  Cursor one;
  Cursor two;
  cursors.begin(&one, &first);
  cursors.begin(&two, &middle);
  cursors.leaves(&middle, &last);
  EXPECT_EQ(one.next, &first);
  EXPECT_EQ(two.next, &last);
  cursors.leaves(&last, nullptr);
  EXPECT_EQ(two.next, nullptr);
  cursors.end(&one);
  cursors.leaves(&first, nullptr);
  EXPECT_EQ(one.next, &first) << "it has ended";
  cursors.end(&two);
}

TEST(Cursors, MayBeginAtTheEnd) {
  workflow::Cursors<Node> cursors;
  Cursor cursor;
  cursors.begin(&cursor, nullptr);
  EXPECT_EQ(cursor.next, nullptr);
  cursors.end(&cursor);
}
