/* The commit of transactions over tables of a lake: three of them, two tables, a database.
 *
 * A step is one request, in the words of the code: transaction/commit_loop.py and lake_commit.py,
 * catalog/ratifying.py and commits.py (the database), catalog/owners.py (leases, kills),
 * transaction/publication.py and vacuum.py. A crash is a process that takes no further step,
 * which Spin considers at every state; a request on its way is a helper that pauses. Table 0's
 * commits are inline in the catalog, table 1's are staged as files.
 *
 * Publication and VACUUM don't decide who may commit. So there are three runs: one for who may,
 * with all kinds of transactions; -DPUBLISHING and -DVACUUMING with what these do, for which who
 * comes first makes no difference. Each -DBROKEN_x takes one guard away, and then the invariant
 * fails that tests/models names. */

#define TXNS 3
#define VERSIONS 4                              /* 0 is there from the beginning */
#define AT(t, v) ((t) * VERSIONS + (v))
#define OF(x, t) ((x) * 2 + (t))

/* A transaction appends to both tables, blindly; or updates both; or updates one, having read
 * the other. All that update want the same row. */
#define APPENDS 0
#define UPDATES 1                               /* 2 + t: updates t alone */
byte kind[TXNS];
#define WRITES(x, t) (kind[x] < 2 || kind[x] - 2 == (t))

/* The catalog's database; a step on it is one of its transactions. */
byte head[2], published[2], holder[2];          /* holder: whose turn it is, + 1 */
byte owner[2 * VERSIONS];                       /* of a ratified version, + 1 */
byte sequence, seq[TXNS];                       /* the lake's instant; a transaction's */
byte doubt;     /* whose COMMIT is neither done nor undone, + 1: the sequence stays locked */
#define ACTIVE 1
#define ENDED 2                                 /* ratified, or ended by itself */
#define DEAD 3                                  /* killed, or reaped after its lease */
byte row[TXNS];                                 /* of `transactions` */

/* The store. */
byte log[2 * VERSIONS];                         /* whose _delta_log/<v>.json it is, + 1 */
bit staged[TXNS], files[TXNS];                  /* in _staged_commits; data files */

/* What transactions know, and what their users were told. */
byte pin[TXNS], state[TXNS * 2];                /* the instant read; the versions followed */
#define COMMITTED 1
#define FAILED 2
#define UNKNOWN 3
byte told[TXNS];


/* The invariants. Never set: the assertion that fails has the name. */
hidden byte one_version, one_instant, first_wins, files_stay, kill_is_final, next_turn;
hidden byte told_committed, told_failed, ratified_alone, no_gap, nothing_lost;
inline violated(invariant) { assert(invariant) }

inline end_transaction(x, how) {                /* owners.end_transactions */
	if :: row[x] == ACTIVE -> row[x] = how :: else fi;
	if :: holder[0] == x + 1 -> holder[0] = 0 :: else fi;
	if :: holder[1] == x + 1 -> holder[1] = 0 :: else fi
}

inline add_commit(x, t) {                       /* _Book._note */
	if
	:: WRITES(x, t) ->
		if :: owner[AT(t, state[OF(x, t)] + 1)] -> violated(one_version) :: else fi;
		head[t] = state[OF(x, t)] + 1;
		owner[AT(t, head[t])] = x + 1
	:: else
	fi
}

#define OVERTOOK(y, x) \
	(kind[x] != APPENDS && seq[y] && kind[y] != APPENDS && seq[y] > pin[x] && seq[y] < seq[x])

inline make_true(x) {                           /* _Book.write */
	sequence++;
	seq[x] = sequence;
	add_commit(x, 0);
	add_commit(x, 1);
	end_transaction(x, ENDED);
	if :: !files[x] -> violated(files_stay) :: else fi;
	if :: row[x] == DEAD -> violated(kill_is_final) :: else fi;
	if :: OVERTOOK(0, x) || OVERTOOK(1, x) || OVERTOOK(2, x) -> violated(first_wins) :: else fi
}

inline publish_own(t) {                         /* publish_newest, _publish */
	if
	:: WRITES(x, t) && (state[OF(x, t)] == 0 || log[AT(t, state[OF(x, t)])]) ->
		log[AT(t, state[OF(x, t)] + 1)] = x + 1; made[t] = 1
#ifdef BROKEN_ORDER
	:: WRITES(x, t) -> log[AT(t, state[OF(x, t)] + 1)] = x + 1; made[t] = 1
#endif
	:: true         /* no reply; or the versions before it are a helper's to publish */
	fi
}

inline note(t, v) {                             /* CommitLedger._published */
	if :: published[t] < v -> published[t] = v :: else fi
}

inline follow(t) {                              /* Rebase.latest, check_selects, follow */
	atomic {
		v = state[OF(x, t)];
		do
		:: v == head[t] -> break
		:: v < head[t] -> v++;
			if
#ifndef BROKEN_CHECK
			:: kind[x] != APPENDS && kind[owner[AT(t, v)] - 1] != APPENDS -> goto refused
#endif
			:: else
			fi
		od;
		state[OF(x, t)] = v; v = 0
	}
}

#if defined BROKEN_HEADS
#define ASKED(x, t) (!WRITES(x, t))
#elif defined BROKEN_READS
#define ASKED(x, t) WRITES(x, t)
#else
#define ASKED(x, t) true                        /* CommitLoop._asked: written, or read */
#endif
#define MOVED(x, t) (ASKED(x, t) && head[t] != state[OF(x, t)])
#define TAKEN(x, t) (holder[t] != 0 && holder[t] != x + 1)

#if defined PUBLISHING || defined VACUUMING
#define IN_ORDER(x) (x == 0 || seq[x - 1] || told[x - 1] || row[x - 1] == DEAD)
#else
#define IN_ORDER(x) true
#endif

proctype Transaction(byte x) {
	byte v;
	bit made[2];

	d_step {                                    /* begin, pin; TableLog.at_sequence */
		row[x] = ACTIVE; files[x] = 1; pin[x] = sequence; state[OF(x, 0)] = head[0];
#ifdef BROKEN_INSTANT
	}
	d_step {
#endif
		state[OF(x, 1)] = head[1];
		for (v : 0 .. TXNS - 1) {               /* all of another transaction, or nothing */
			if
			:: seq[v] && WRITES(v, 0) && WRITES(v, 1) &&
				(state[OF(v, 0)] < state[OF(x, 0)]) != (state[OF(v, 1)] < state[OF(x, 1)]) ->
				violated(one_instant)
			:: else
			fi
		}
		v = 0
	}

attempt:
#ifdef BROKEN_EARLY
	publish_own(0);
#endif
	atomic {                                    /* Ratifier.ratify */
		doubt == 0 && IN_ORDER(x);              /* the sequence is locked first */
		staged[x] = WRITES(x, 1);
		if
#ifndef BROKEN_OWNER
		:: row[x] != ACTIVE -> goto refused     /* _check_owner */
#endif
		:: else
		fi;
		if
#ifndef BROKEN_TURN
		:: (WRITES(x, 0) && TAKEN(x, 0)) || (WRITES(x, 1) && TAKEN(x, 1)) ->
			staged[x] = 0; goto catch_up        /* Reserved: _drop */
#endif
		:: else
		fi;
		if
		:: MOVED(x, 0) || MOVED(x, 1) -> goto moved
		:: else
		fi;
		if
		:: d_step { make_true(x) }; goto ratified
#ifdef BROKEN_TOGETHER
		:: d_step { sequence++; seq[x] = sequence; add_commit(x, 0) };
		   goto second
#endif
		:: doubt = x + 1                        /* CommitUnsettled */
#ifdef BROKEN_HOPE
			; goto ratified
#endif
		:: goto refused                         /* Unavailable, or its lease is over */
		fi
	}
	if                                          /* CommitLedger._looked_up */
	:: atomic {
#ifndef BROKEN_LOOK
		doubt == 0;                             /* waits for the first request's end */
#endif
		if :: seq[x] -> goto ratified :: else -> goto refused fi }
	:: atomic { told[x] = UNKNOWN               /* OutcomeUnknown: nothing is dropped */
#ifdef BROKEN_DROP
		; staged[x] = 0
#endif
		; goto done }
	fi;

#ifdef BROKEN_TOGETHER
second:
	atomic { add_commit(x, 1); end_transaction(x, ENDED); goto ratified };
#endif

moved:
	atomic {                                    /* CommitLedger.reserve */
		doubt == 0;
		if :: row[x] == ACTIVE && holder[0] == x + 1 -> violated(next_turn) :: else fi;
		staged[x] = 0;                          /* _drop */
		if
		:: row[x] != ACTIVE -> goto refused
#ifndef PUBLISHING
		:: row[x] == ACTIVE && !TAKEN(x, 0) && !TAKEN(x, 1) ->
			holder[0] = x + 1; holder[1] = x + 1
#endif
		:: row[x] == ACTIVE                     /* another's turn, or too few losses */
		fi
	}
catch_up:
	follow(0);
	follow(1);
	goto attempt;

refused:
	atomic {                                    /* _drop, Transactions.end */
		doubt == 0; v = 0;
		staged[x] = 0; end_transaction(x, ENDED); told[x] = FAILED
	}
	goto done;

ratified:
#ifdef BROKEN_NOTE
	atomic { if :: WRITES(x, 0) -> note(0, state[OF(x, 0)] + 1) :: else fi };
#endif
#ifdef PUBLISHING
	publish_own(0);
	publish_own(1);
#endif
	atomic {                                    /* CommitLedger.publishes, _tidy */
		if :: made[0] -> note(0, state[OF(x, 0)] + 1) :: else fi;
		if :: made[1] -> note(1, state[OF(x, 1)] + 1); staged[x] = 0 :: else fi;
		made[0] = 0; made[1] = 0; told[x] = COMMITTED
	}
done:
	atomic {                                    /* nothing is asked of it any more */
		if
		:: !seq[x] && doubt != x + 1 -> pin[x] = 0; state[OF(x, 0)] = 0; state[OF(x, 1)] = 0
		:: else
		fi
	}
}

#ifdef PUBLISHING
/* publish_pending, by whoever opens a table or the lake, beside the transactions. */
active proctype Helper() {
	byte t, v, last;
end:	do
	:: d_step { published[0] < head[0] -> t = 0; v = published[0]; last = head[0] }
		goto puts
	:: d_step { published[1] < head[1] -> t = 1; v = published[1]; last = head[1] }
		goto puts
	od;
puts:	do
	:: v < last -> d_step {
		v++; if :: log[AT(t, v)] == 0 -> log[AT(t, v)] = owner[AT(t, v)] :: else fi }
	:: v < last -> break                        /* the store is away, or it crashes */
	:: v == last -> atomic { note(t, last);
		do                                      /* _tidy */
		:: t == 1 && v > 0 -> staged[owner[AT(1, v)] - 1] = 0; v--
		:: else -> break
		od };
		break
	od;
	atomic { t = 0; v = 0; last = 0; goto end }
}

#endif

#ifdef VACUUMING
/* plan_vacuum and vacuum, with a retention of nothing, of any transaction's files. */
active proctype Vacuum() {
	byte x;
end:	do
	:: atomic {                                 /* plan_vacuum: what no version names yet */
		if
		:: files[0] && !seq[0] -> x = 0
		:: files[1] && !seq[1] -> x = 1
		:: files[2] && !seq[2] -> x = 2
		fi
	   }
	   atomic {                                 /* Transactions.oldest_begin_ms */
		doubt == 0;
		if
#ifdef BROKEN_REAP
		:: row[x] == ACTIVE                     /* its lease is over */
#else
		:: row[x] == ACTIVE -> end_transaction(x, DEAD)
#endif
		:: row[x] > ACTIVE
		:: x = 0; goto end
		fi
	   }
	   atomic {                                 /* _added_since; Store.delete */
		if
#ifndef BROKEN_LIVE
		:: seq[x]
#else
		:: seq[x] -> violated(files_stay)
#endif
		:: !seq[x] && told[x]                   /* nobody asks for them any more */
		:: !seq[x] && !told[x] -> files[x] = 0
		fi;
		x = 0
	   }
	od
}

#endif

/* A COMMIT in doubt is done or undone; sessions are reaped, transactions killed. */
active proctype Fate() {
end:	do
	:: d_step { doubt != 0 -> make_true(doubt - 1); doubt = 0 }
	:: doubt != 0 -> doubt = 0
#ifndef PUBLISHING
	:: d_step { row[0] == ACTIVE && doubt != 1 -> end_transaction(0, DEAD) }
	:: d_step { row[1] == ACTIVE && doubt != 2 -> end_transaction(1, DEAD) }
	:: d_step { row[2] == ACTIVE && doubt != 3 -> end_transaction(2, DEAD) }
#endif
	od
}

#define TOLD_COMMITTED(x) (told[x] != COMMITTED || seq[x])
#define TOLD_FAILED(x) (told[x] != FAILED || !seq[x])
#define RATIFIED_ALONE(t, v) (!log[AT(t, v)] || log[AT(t, v)] == owner[AT(t, v)])
#define NO_GAP(t, v) (!log[AT(t, v)] || v == 1 || log[AT(t, v - 1)])
#define IN_CATALOG(t, v) (t == 0 && v > published[t])
#define IN_STAGED(t, v) (t == 1 && staged[owner[AT(t, v)] - 1])
#define NOTHING_LOST(t, v) (head[t] < v || log[AT(t, v)] || IN_CATALOG(t, v) || IN_STAGED(t, v))
#define EACH(P) (P(0) && P(1) && P(2))
#define VERSION(P) (P(0, 1) && P(0, 2) && P(0, 3) && P(1, 1) && P(1, 2) && P(1, 3))
active proctype Invariants() {                  /* of every state */
end:	do
	:: d_step { !EACH(TOLD_COMMITTED) -> violated(told_committed) }
	:: d_step { !EACH(TOLD_FAILED) -> violated(told_failed) }
	:: d_step { !VERSION(RATIFIED_ALONE) -> violated(ratified_alone) }
	:: d_step { !VERSION(NO_GAP) -> violated(no_gap) }
	:: d_step { !VERSION(NOTHING_LOST) -> violated(nothing_lost) }
	od
}

init {
	byte k;
	atomic {                                    /* who is who makes no difference */
#if !defined PUBLISHING && !defined VACUUMING
		select (k : 0 .. 3); kind[0] = k;
		select (k : k .. 3); kind[1] = k;
		select (k : k .. 3); kind[2] = k; k = 0;
#elif defined PUBLISHING
		kind[1] = 2; kind[2] = 3;
#endif
		run Transaction(0); run Transaction(1); run Transaction(2)
	}
}
