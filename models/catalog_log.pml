/* The log of a catalog in a store: catalog/replicated/log.py and database.py.
 *
 * Three processes, each with a replica that may be behind, and one request each. A step is one
 * request to the store. A put whose reply is lost was done, or was not, or is done later, while its
 * process goes on. A crash is a process that takes no further step, which Spin considers at every
 * state; one that stands still is a process that pauses. Old entries are deleted behind a snapshot.
 * Each -DBROKEN_x takes one guard away, and then the invariant fails that tests/models names. */

#define PROCESSES 3
#define FIRST 2                                 /* entries that are there from the beginning */
#define NUMBERS 5                               /* the newest entry's number at most */
#define PUTS_MAX 2                              /* _ATTEMPTS */
/* Requests of a run that go wrong: -DMORE has one with deletions, two without. */
#if defined DELETING && !defined MORE
#define LOST_MAX 0
#elif defined DELETING || !defined MORE
#define LOST_MAX 1
#else
#define LOST_MAX 2
#endif

/* A process inserts the row; or changes it, which is refused as long as it isn't there; or reads;
 * or puts an entry ahead to claim a turn, and then reads. */
#define INSERTS 0
#define CHANGES 1
#define READS 2
#define CLAIMS 3
byte kind[PROCESSES];

/* Entries: those of a process's request, one for each put; those without changes with which it
 * takes an undecided number; and those of others. An entry's id is this and its number. */
#define ENTRY(p, put) ((p) + 1 + PROCESSES * (put))
#define EMPTY(p, put) ((p) + 7 + PROCESSES * (put))
#define IS_OF(what, p) ((what) == ENTRY(p, 0) || (what) == ENTRY(p, 1))
#define OLD 13
#define CLAIM 14

/* The store: log/<number>, the newest snapshot's number, and that of the newest one older than the
 * retention. What was created first as a number is the entry that every replica applies, also when
 * it has been deleted since. */
byte log[NUMBERS + 1], first[NUMBERS + 1], snapshot, old_snapshot;
byte late[PROCESSES], late_what[PROCESSES];     /* a put on its way */
byte copied;                                    /* a snapshot that isn't put yet */
byte lost;
#define MAY_LOSE (lost < LOST_MAX)

/* Processes: the replica's position; whether that was the log's end, or its newest snapshot, so
 * recently that no later entry can have been deleted; and whether a look that will say so has
 * begun as recently. */
byte position[PROCESSES];
bit sure[PROCESSES], begun[PROCESSES];
byte newest_at_begin[PROCESSES];
#define COMMITTED 1
#define FAILED 2
#define UNKNOWN 3
byte told[PROCESSES];

/* The invariants. Never set: the assertion that fails has the name. */
hidden byte once, same_entry, told_committed, told_failed, newest_read, true_refusal, kept;
inline violated(invariant) { assert(invariant) }

byte newest = FIRST;                             /* the newest number without a gap before it */
#define INSERTED_AT(n, p) (kind[p] == INSERTS && IS_OF(first[n], p))
#define INSERT_AT(n) (INSERTED_AT(n, 0) || INSERTED_AT(n, 1) || INSERTED_AT(n, 2))
#define UP_TO(n, number, P) ((n) <= (number) && P(n))
#define ANY_UP_TO(number, P) (UP_TO(3, number, P) || UP_TO(4, number, P) || UP_TO(5, number, P))
#define IS_OWN(n) IS_OF(first[n], p)
#define HAS_ROW(number) ANY_UP_TO(number, INSERT_AT)
#define HAS_OWN(number) ANY_UP_TO(number, IS_OWN)

#define OWNER(what) (((what) - 1) % PROCESSES)
#define EARLIER(m, n, what) ((m) < (n) && IS_OF(first[m], OWNER(what)))
inline create(n, what) {                        /* Store.put_if_absent, when it arrives */
	if
	:: log[n] == 0 ->
		log[n] = what;
		if
		:: first[n] == 0 ->
			first[n] = what;
			if
			:: what <= 2 * PROCESSES ->
				if :: told[OWNER(what)] == FAILED -> violated(told_failed) :: else fi;
				if
				:: EARLIER(3, n, what) || EARLIER(4, n, what) -> violated(once)
				:: else
				fi
			:: else
			fi;
			do :: newest < NUMBERS && first[newest + 1] -> newest++ :: else -> break od
		:: else                                 /* its entry was deleted: nobody applies this */
		fi
#ifdef BROKEN_OVERWRITE
	:: log[n] != 0 -> log[n] = what
#else
	:: else
#endif
	fi
}

inline apply(data) {                            /* CatalogLog._apply */
	position[p]++;
	if :: data != first[position[p]] -> violated(same_entry) :: else fi
}

#ifdef BROKEN_EMPTY
#define IS_EMPTY(p) (position[p] == 0)
#else
#define IS_EMPTY(p) (position[p] == 0 && !snapshot)
#endif
#define HAS_ENTRY(p) (IS_EMPTY(p) || position[p] && log[position[p]] == first[position[p]])

inline tell(outcome) {
	told[p] = outcome;
	if :: outcome == COMMITTED && !HAS_OWN(NUMBERS) -> violated(told_committed) :: else fi;
	if :: outcome == FAILED && HAS_OWN(NUMBERS) -> violated(told_failed) :: else fi
}

/* Whether an entry that was found at the number of a put is its process's. */
#define IS_MADE(data) (data == what || puts == 2 && data == what - PROCESSES)

#define WORK 1
#define ANSWER 2
#define CHECK 3

proctype Process(byte p) {
	byte n, data, what, base, puts, next;
	bit is_undecided, is_looked_for;

	d_step { newest_at_begin[p] = newest }
	if
#ifdef BROKEN_LOOK
	:: kind[p] == READS -> next = ANSWER; goto looked
#else
	:: kind[p] == READS -> next = ANSWER; goto look
#endif
	:: kind[p] == CLAIMS -> next = ANSWER;
		if                                      /* CatalogLog.claim */
		:: d_step { create(position[p] + 2, CLAIM) }
		:: atomic { MAY_LOSE -> lost++; late[p] = position[p] + 2; late_what[p] = CLAIM }
		fi;
		goto look
	:: else
	fi;

work:                                           /* ReplicatedDatabase._attempt, on the replica */
	atomic {
		base = position[p]; data = 0; puts = 0; n = 0;
		if
		:: is_looked_for && HAS_OWN(base) -> tell(COMMITTED); goto done
#ifndef BROKEN_UNDECIDED
		:: is_looked_for && !HAS_OWN(base) && is_undecided -> what = EMPTY(p, 0)
		:: is_looked_for && !HAS_OWN(base) && !is_undecided -> next = CHECK; goto look
#else
		:: is_looked_for && !HAS_OWN(base) -> next = CHECK; goto look
#endif
#ifdef BROKEN_CHECK
		:: !is_looked_for && kind[p] == CHANGES && !HAS_ROW(base) -> goto refused
#else
		:: !is_looked_for && kind[p] == CHANGES && !HAS_ROW(base) -> next = CHECK; goto look
#endif
		:: !is_looked_for && (kind[p] != CHANGES || HAS_ROW(base)) -> what = ENTRY(p, 0)
		fi;
		n = base + 1;
		if :: n > NUMBERS -> goto done :: else fi
	}

put:                                            /* CatalogLog.append */
	atomic {
		puts++;
		if :: puts == 1 -> begun[p] = 1 :: else fi;
		if
#ifdef BROKEN_OVERWRITE
		:: d_step { create(n, what) }; data = what; goto check
#else
		:: log[n] == 0 -> d_step { create(n, what) };
			if
			:: data = what; goto check          /* CREATED */
			:: MAY_LOSE -> lost++               /* EXISTS, since the client sent it twice */
			:: MAY_LOSE -> lost++; goto unsettled   /* Unavailable */
			fi
		:: log[n] != 0                          /* EXISTS */
#endif
		:: MAY_LOSE -> lost++                   /* UNKNOWN: it never arrived */
		:: MAY_LOSE && !late[p] -> lost++; late[p] = n; late_what[p] = what
		:: MAY_LOSE && !late[p] -> lost++; late[p] = n; late_what[p] = what; goto unsettled
		fi;
#ifdef BROKEN_HOPE
		data = what; goto check
#endif
	}
	atomic {                                    /* CatalogLog._get, of the same number */
		data = log[n];
		if
#ifdef BROKEN_ID
		:: data -> apply(data); goto work
#else
		:: data -> goto check
#endif
		:: !data && puts < PUTS_MAX ->
#ifndef BROKEN_AGAIN
			what = what + PROCESSES;
#endif
			goto put
#ifdef BROKEN_GIVE_UP
		:: !data -> tell(FAILED); goto done
#endif
		:: !data && puts == PUTS_MAX -> goto unsettled
		:: MAY_LOSE -> lost++; goto unsettled   /* Unavailable */
		fi
	}

check:                                          /* CatalogLog._has_entry, of the entry before */
	atomic {
		if
#ifndef BROKEN_FENCE
		:: !sure[p] && !HAS_ENTRY(p) ->
#ifdef BROKEN_DELETE
			log[n] = 0;
#endif
#ifdef BROKEN_RERUN
			begun[p] = 0; next = WORK; goto load
#else
			goto unsettled
#endif
		:: sure[p] || HAS_ENTRY(p)
#else
		:: true
#endif
		fi;
		is_undecided = 0;
		if
		:: !IS_MADE(data) -> apply(data); begun[p] = 0; goto work       /* Superseded */
		:: IS_MADE(data) -> position[p] = n;
			if :: !sure[p] -> sure[p] = begun[p] :: else fi;
			begun[p] = 0;
			if :: is_looked_for -> tell(FAILED) :: else -> tell(COMMITTED) fi;
			goto done
		fi
	}

unsettled:                                      /* CommitUnsettled: CommitLedger._find_ratified */
	atomic {
		begun[p] = 0; is_undecided = 1;
		if
		:: !is_looked_for -> is_looked_for = 1; goto work
		:: told[p] = UNKNOWN; goto done
		fi
	}

load:                                           /* CatalogLog.load: lists the snapshots */
	atomic { position[p] = snapshot; sure[p] = 0; begun[p] = 1; data = 0; n = 0 }
	atomic {
		if
		:: HAS_ENTRY(p) -> sure[p] = begun[p]; begun[p] = 0
		:: !HAS_ENTRY(p) -> goto load           /* a newer one has come */
		fi
	}
look:                                           /* CatalogLog.catch_up, apply_next */
	atomic {
		if :: position[p] == NUMBERS -> data = 0 :: else -> data = log[position[p] + 1] fi;
		begun[p] = !data;
		if
#ifdef BROKEN_GAP
		:: data -> apply(data); goto look
		:: !data -> sure[p] = 1; goto looked
#else
		:: sure[p] && data -> apply(data); goto look
		:: sure[p] && !data -> begun[p] = 0; goto looked
		:: !sure[p]
#endif
		fi
	}
	atomic {                                    /* CatalogLog._has_entry */
		if
		:: !HAS_ENTRY(p) -> begun[p] = 0; goto load
		:: HAS_ENTRY(p) && data -> apply(data); begun[p] = 0; goto look
		:: HAS_ENTRY(p) && !data -> sure[p] = begun[p]; begun[p] = 0
		fi
	}
looked:
	atomic {
		data = 0;
		if
		:: next == WORK || next == CHECK && position[p] != base -> goto work
		:: next == CHECK && position[p] == base && is_looked_for -> tell(FAILED); goto done
		:: next == CHECK && position[p] == base && !is_looked_for -> goto refused
		:: next == ANSWER ->
			if :: position[p] < newest_at_begin[p] -> violated(newest_read) :: else fi;
			goto done
		fi
	}
refused:
	atomic {
		if :: HAS_ROW(newest_at_begin[p]) -> violated(true_refusal) :: else fi;
		tell(FAILED)
	}
done:
	atomic {
		begun[p] = 0; data = 0; what = 0; base = 0; puts = 0; next = 0; n = 0;
		is_undecided = 0; is_looked_for = 0;
		if
#ifdef DELETING
		:: !copied && position[p] > snapshot -> copied = position[p]    /* write_snapshot */
#endif
		:: true
		fi
	}
}

/* A request that was on its way arrives. */
#define ARRIVES(x) :: d_step { late[x] -> create(late[x], late_what[x]); late[x] = 0; late_what[x] = 0 }
active proctype Network() {
end:	do
	ARRIVES(0) ARRIVES(1) ARRIVES(2)
	:: d_step { copied -> if :: copied > snapshot -> snapshot = copied :: else fi; copied = 0 }
	od
}

#ifdef DELETING
/* Time passes: ten minutes after a look, or more. */
#define PASSES(x) :: d_step { sure[x] || begun[x] -> sure[x] = 0; begun[x] = 0 }
active proctype Time() {
end:	do
	PASSES(0) PASSES(1) PASSES(2)
	od
}

/* Entries are deleted before a snapshot that is older than the retention, the lowest first. A
 * process is sure for less time than that, and a request is on its way for less. */
#define NEEDS(x) ((sure[x] || begun[x]) && position[x] < snapshot)
#ifdef BROKEN_AGE
#define IS_OLD true
#else
#define IS_OLD (!NEEDS(0) && !NEEDS(1) && !NEEDS(2))
#endif
#ifdef BROKEN_BEHIND
#define IS_BEHIND(n) (n <= old_snapshot)
#else
#define IS_BEHIND(n) (n < old_snapshot)
#endif
#ifdef BROKEN_ORDER
#define IS_LOWEST(n) true
#else
#define IS_LOWEST(n) (n == 1 || log[n - 1] != first[n - 1])
#endif
#define IS_LATE(x, n) (late[x] == n && late_what[x] == log[n])
#define ARRIVED(n) (!IS_LATE(0, n) && !IS_LATE(1, n) && !IS_LATE(2, n))
#define DELETES(n) \
	:: d_step { log[n] && log[n] == first[n] && IS_BEHIND(n) && IS_LOWEST(n) && ARRIVED(n) -> \
		log[n] = 0 }
active proctype Retention() {
end:	do
	DELETES(1) DELETES(2) DELETES(3) DELETES(4) DELETES(5)
	:: d_step { old_snapshot < snapshot && IS_OLD -> old_snapshot = snapshot }
	od
}

#endif

#define KEPT(n) (n < snapshot || n > newest || log[n] == first[n])
active proctype Invariants() {                  /* of every state */
end:	do
	:: d_step { !(KEPT(1) && KEPT(2) && KEPT(3) && KEPT(4) && KEPT(5)) -> violated(kept) }
	od
}

init {
	byte k;
	atomic {
		for (k : 1 .. FIRST) { log[k] = OLD; first[k] = OLD }
#if defined DELETING && defined MORE
		position[0] = 1; position[1] = 1; position[2] = FIRST;
#elif defined DELETING
		select (k : 0 .. 1); kind[0] = k * READS;
		select (k : 0 .. 1); kind[1] = k * READS;
		select (k : 0 .. 1); kind[2] = k * CLAIMS;
		select (k : 0 .. 1); position[0] = k;
		select (k : 0 .. 1); position[1] = k;
		position[2] = FIRST;
#else
		select (k : 0 .. 3); kind[0] = k;
		select (k : k .. 3); kind[1] = k;
		select (k : k .. 3); kind[2] = k;
		position[0] = 1; position[1] = 1; position[2] = 1;
#endif
		for (k : 0 .. PROCESSES - 1) { sure[k] = 1 }
		k = 0;
		run Process(0); run Process(1); run Process(2)
	}
}
