/* The end of a branch: published by two processes, dropped by a third, beside commits on it and
 * on main, and beside VACUUM. One table of two rows; a transaction updates the row that it read.
 *
 * A step is one request, in the words of the code: session/branches.py (publish, drop_branch),
 * catalog/branches.py and branch_rows.py, catalog/ratifying.py (the database), commit/vacuum.py and
 * branch_store.py. A crash is a process that takes no further step, which Spin considers at every
 * state. -DREADING has a reader of the branch, whose first version main may not have put into its
 * log; -DVACUUMING has VACUUM with a retention of nothing, and one publisher. Each -DBROKEN_x takes
 * one guard away, and then the invariant fails that tests/models names. */

#define WRITERS 3                               /* 0 on main, 1 and 2 on the branch */
#define VERSIONS 4
#define ON_BRANCH(x) ((x) > 0)
#define ROWS(x) (1 << row[x])
byte row[WRITERS];

/* The catalog's database; a step on it is one of its transactions. */
#define NONE 0
#define OPEN 1
#define PUBLISHED 2
#define DROPPED 3
byte branch, base;                              /* the version that it began with */
byte head, bhead;                               /* main's newest version, and the branch's */
byte rows[VERSIONS], brows[VERSIONS];           /* which rows a version updated */
byte seen[VERSIONS];                            /* which writers' commits a version brings */
bit instant[WRITERS], living[WRITERS];            /* commits or bare ratifications; transactions */

/* The stores. */
bit log[VERSIONS], file[WRITERS];               /* main's versions; a writer's data file */

/* What is true, and what users were told. */
bit ratified[WRITERS];
#define COMMITTED 1
#define FAILED 2
byte told[WRITERS], told_publish[2], told_drop;

/* The invariants. Never set: the assertion that fails has the name. */
hidden byte first_wins, nothing_lost, once, told_committed, told_failed, told_dropped;
hidden byte base_there, files_stay;
inline violated(invariant) { assert(invariant) }

#define SINCE(v, mask, of) (v < VERSIONS && (of[v] & (mask)))
#define OVERTAKEN(from, mask) \
	((from < 1 && SINCE(1, mask, rows)) || (from < 2 && SINCE(2, mask, rows)) || \
	 (from < 3 && SINCE(3, mask, rows)))
#define OVERTAKEN_ON_BRANCH(from, mask) \
	((from < 1 && SINCE(1, mask, brows)) || (from < 2 && SINCE(2, mask, brows)))

/* Branches.create, at whatever instant. */
active proctype Create() {
	atomic { branch == NONE -> branch = OPEN; base = head }
}

proctype Writer(byte x) {
	byte pin, state;
	atomic {                                    /* begin; write the file */
		!ON_BRANCH(x) || branch != NONE;
		if
		:: ON_BRANCH(x) && branch != OPEN -> told[x] = FAILED; goto done
		:: else
		fi;
		if :: row[x] = 0 :: row[x] = 1 fi;
		living[x] = 1; file[x] = 1;
		if :: ON_BRANCH(x) -> pin = bhead :: else -> pin = head fi;
		state = pin
	}
attempt:
	atomic {                                    /* _Batch.decide: one batch or several */
		if
#ifndef BROKEN_GONE
		:: ON_BRANCH(x) && branch != OPEN -> goto refused    /* _gone_tables */
#endif
		:: ON_BRANCH(x) && bhead != state && (branch == OPEN) -> state = bhead;
			if
			:: OVERTAKEN_ON_BRANCH(pin, ROWS(x)) -> goto refused
			:: else -> goto attempt
			fi
		:: !ON_BRANCH(x) && head != state -> state = head;
			if :: OVERTAKEN(pin, ROWS(x)) -> goto refused :: else -> goto attempt fi
		:: else
		fi;
		if
		:: goto unanswered                      /* CommitUnsettled, and undone */
		:: true
		fi;
		if
		:: ON_BRANCH(x) && branch == OPEN -> bhead++; brows[bhead] = ROWS(x)
		:: ON_BRANCH(x) && branch != OPEN       /* a row of a table that is gone */
		:: !ON_BRANCH(x) ->
			if :: OVERTAKEN(pin, ROWS(x)) -> violated(first_wins) :: else fi;
			head++; rows[head] = ROWS(x); seen[head] = 1 << x
		fi;
		ratified[x] = 1; living[x] = 0; instant[x] = 1;
		if
		:: told[x] = COMMITTED; goto done
		:: true
		fi
	}
unanswered:
	atomic {                                    /* CommitLedger._find_ratified */
		if
#ifdef BROKEN_HOPE
		:: told[x] = COMMITTED
#else
		:: instant[x] -> told[x] = COMMITTED
		:: !instant[x] -> goto refused
#endif
		fi
	};
	goto done;
refused:
	atomic { living[x] = 0; told[x] = FAILED };
done:
	skip
}

#define PUBLISHED_BY_MAIN (seen[1] | seen[2] | seen[3])
#define BRANCH_ROWS (brows[1] | brows[2])
#define BRANCH_WRITERS ((ratified[1] << 1) | (ratified[2] << 2))

inline end_branch(how) {                        /* branch_rows.delete_branch */
	branch = how;
#ifdef BROKEN_INSTANT
	instant[1] = 0; instant[2] = 0;
#endif
}

proctype Publish(byte p) {
	byte version, mask, writers, state;
	atomic {                                    /* Branches.tables; read the branch's log */
		branch != NONE;
		if :: branch != OPEN -> told_publish[p] = FAILED; goto done :: else fi;
		version = bhead; mask = BRANCH_ROWS; writers = BRANCH_WRITERS; state = base
	}
follow:
	atomic {                                    /* Rebase.latest, check_selects, follow */
		state = head;
#ifndef BROKEN_FOOTPRINT
		if
		:: OVERTAKEN(base, mask) -> told_publish[p] = FAILED; goto done
		:: else
		fi
#endif
	}
	atomic {                                    /* _Batch.decide; end_branch */
		if
		:: head != state -> goto follow
#ifndef BROKEN_ENDED
		:: head == state && branch != OPEN -> told_publish[p] = FAILED; goto done
#endif
#ifndef BROKEN_FENCE
		:: head == state && branch == OPEN && bhead != version ->
			told_publish[p] = FAILED; goto done
#endif
		:: else
		fi;
		if :: branch == PUBLISHED -> violated(once) :: else fi;
		if :: OVERTAKEN(base, mask) -> violated(first_wins) :: else fi;
		head++; rows[head] = mask; seen[head] = writers;
		end_branch(PUBLISHED);
		told_publish[p] = COMMITTED
	};
done:
	skip
}

active proctype Drop() {
	atomic { branch != NONE }
#ifdef BROKEN_DROP
	if                                          /* finds the branch, and deletes it later */
	:: atomic { branch == OPEN -> skip }; atomic { end_branch(DROPPED); told_drop = COMMITTED }
	:: atomic { branch != OPEN -> told_drop = FAILED }
	fi
#else
	atomic {
		if
		:: branch == OPEN -> end_branch(DROPPED); told_drop = COMMITTED
		:: else -> told_drop = FAILED
		fi
	}
#endif
}

#ifdef READING
/* Put main's versions into its log, each after the one before; and read the branch. */
active proctype Log() {
end:	do
	:: atomic { !log[1] && head >= 1 -> log[1] = 1 }
	:: atomic { log[1] && !log[2] && head >= 2 -> log[2] = 1 }
	od
}

active proctype Reader() {
	byte v;
end:	atomic { branch == OPEN -> v = 1 }
	do
	:: atomic { v > base -> break }
	:: atomic { v <= base && v < 3 ->
#ifndef BROKEN_BASE
		log[v] = 1;                             /* BranchStore: publish_parent */
#endif
		if :: !log[v] -> violated(base_there) :: else fi;
		v++ }
	:: atomic { v > 2 -> break }
	od
}
#endif

#ifdef VACUUMING
inline lines() {                                /* _needed_elsewhere */
	do
	:: atomic { branch != OPEN -> break }
	:: atomic { branch == OPEN -> skip };
	   if
	   :: atomic { branch == OPEN -> needed = needed || ratified[1] }; break
	   :: atomic { branch != OPEN -> skip }     /* it has ended: look again */
	   fi
	od
}

inline versions_of_main() {                     /* _added_since */
	atomic { needed = needed || (PUBLISHED_BY_MAIN & 2) }
}

active proctype Vacuum() {
	bit needed;
end:	atomic { file[1] -> skip };                 /* Store.list */
	atomic { needed = living[1] };              /* Transactions.others_open */
#ifdef BROKEN_ORDER
	versions_of_main();
	lines();
#else
#ifndef BROKEN_LINES
	lines();
#endif
	versions_of_main();
#endif
	atomic { if :: !needed -> file[1] = 0 :: else fi }
}
#endif

#define BROUGHT(x) (PUBLISHED_BY_MAIN & (1 << x))
#define NOTHING_LOST(x) (branch != PUBLISHED || !ratified[x] || BROUGHT(x))
#define TOLD_COMMITTED(x) (told[x] != COMMITTED || ratified[x])
#define TOLD_FAILED(x) (told[x] != FAILED || !ratified[x])
#define LIVES(x) (ratified[x] && (branch == OPEN || (branch == PUBLISHED && BROUGHT(x))))
active proctype Invariants() {                  /* of every state */
end:	do
	:: d_step { !NOTHING_LOST(1) || !NOTHING_LOST(2) -> violated(nothing_lost) }
	:: d_step { !TOLD_COMMITTED(1) || !TOLD_COMMITTED(2) -> violated(told_committed) }
	:: d_step { !TOLD_FAILED(1) || !TOLD_FAILED(2) -> violated(told_failed) }
	:: d_step { told_drop == COMMITTED && PUBLISHED_BY_MAIN > 1 -> violated(told_dropped) }
	:: d_step { told_publish[0] == COMMITTED && told_publish[1] == COMMITTED -> violated(once) }
	:: d_step { LIVES(1) && !file[1] -> violated(files_stay) }
	od
}

init {
	atomic {
		run Writer(0); run Writer(1); run Writer(2); run Publish(0);
#if !defined READING && !defined VACUUMING
		run Publish(1)
#endif
	}
}
